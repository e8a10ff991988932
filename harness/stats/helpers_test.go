package stats

import (
	"os"
	"strconv"
	"testing"

	"github.com/leanovate/gopter"
	"github.com/stretchr/testify/require"
)

// testSeed is SHATTER_SEED, or a fixed number: a failure repeats unless one asks for other draws.
func testSeed(t *testing.T) int64 {
	t.Helper()
	text := os.Getenv("SHATTER_SEED")
	if text == "" {
		return 20240607
	}
	seed, err := strconv.ParseInt(text, 10, 64)
	require.NoError(t, err, "SHATTER_SEED")
	return seed
}

// parameters make a property run repeatable: one worker, one seed, named in the log.
func parameters(t *testing.T) *gopter.TestParameters {
	t.Helper()
	seed := testSeed(t)
	t.Logf("SHATTER_SEED=%d", seed)
	p := gopter.DefaultTestParametersWithSeed(seed)
	p.Workers = 1
	p.MinSuccessfulTests = 200
	p.MaxSize = 60
	return p
}

func kappa() Measure { return Measure{Name: "kappa", Unit: "1"} }

func population() Population {
	return Population{
		Label:      "serving on classic",
		Generator:  "serving",
		Version:    "3",
		Parameters: []Parameter{{"ops", "2000"}, {"capacity", "80GiB"}},
	}
}

func sample(t *testing.T, values ...float64) Sample {
	t.Helper()
	s, err := NewSample(kappa(), population(), values)
	require.NoError(t, err)
	return s
}

// upTo is 1, 2, ..., n, so that a value equals its rank.
func upTo(n int) []float64 {
	values := make([]float64, n)
	for i := range values {
		values[i] = float64(i + 1)
	}
	return values
}
