package corpus_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/corpus"
)

func TestCodecRoundTrip(t *testing.T) {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	for _, in := range [][]byte{{}, []byte("plain"), []byte("`\"\\\n\r\x00"), every, []byte("h\u00e9\u2028\ufeff")} {
		out, err := corpus.Unmarshal(corpus.Marshal(in))
		require.NoError(t, err)
		require.Equal(t, in, out)
	}
	require.Equal(t, "go test fuzz v1\n[]byte(\"a\\x80\\n\")\n", string(corpus.Marshal([]byte("a\x80\n"))))
}

func TestUnmarshalTakesWhatGoTestTakes(t *testing.T) {
	for _, file := range []string{
		"go test fuzz v1\n[]byte(\"ab\")",
		"go test fuzz v1\r\n[]byte(\"ab\")\r\n",
		"go test fuzz v1\n\n[]byte(\"ab\")\n\n",
		"go test fuzz v1\n[]byte(`ab`)\n",
		"go test fuzz v1\n[]byte(\"a\\x62\") // why\n",
	} {
		out, err := corpus.Unmarshal([]byte(file))
		require.NoError(t, err, "%q", file)
		require.Equal(t, "ab", string(out))
	}
}

func TestUnmarshalRefuses(t *testing.T) {
	for file, want := range map[string]string{
		"":                                `the first line must be "go test fuzz v1"`,
		"go test fuzz v2\n[]byte(\"\")\n": `the first line must be "go test fuzz v1"`,
		"go test fuzz v1\n":               "one []byte expected, 0 values found",
		"go test fuzz v1\n[]byte(\"\")\n[]byte(\"\")\n":  "one []byte expected, 2 values found",
		"go test fuzz v1\n// note\n[]byte(\"\")\n":       "one []byte expected, 2 values found",
		"go test fuzz v1\nstring(\"a\")\n":               "[]byte(\"...\") expected, found string(\"a\")",
		"go test fuzz v1\n[]byte('a')\n":                 "[]byte(\"...\") expected, found []byte('a')",
		"go test fuzz v1\n[]byte(\"a\n":                  "[]byte(\"...\") expected, found []byte(\"a",
		"go test fuzz v1\n[]byte(\"a\"\n":                "[]byte(\"...\") expected, found []byte(\"a\"",
		"go test fuzz v1\n[]byte(\"a\") []byte(\"b\")\n": "[]byte(\"...\") expected, found []byte(\"a\") []byte(\"b\")",
	} {
		_, err := corpus.Unmarshal([]byte(file))
		require.EqualError(t, err, want, "%q", file)
	}
}

func TestReadInputs(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "folder"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "folder", "notes"), []byte("anything"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "b"), corpus.Marshal([]byte("two")), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a"), corpus.Marshal(nil), 0o644))
	inputs, err := corpus.ReadInputs(dir)
	require.NoError(t, err)
	require.Equal(t, map[string][]byte{"a": {}, "b": []byte("two")}, inputs)

	require.NoError(t, os.WriteFile(filepath.Join(dir, "README.md"), []byte("notes"), 0o644))
	_, err = corpus.ReadInputs(dir)
	require.ErrorContains(t, err, "README.md: the first line must be")
	_, err = corpus.ReadInputs(filepath.Join(dir, "nowhere"))
	require.Error(t, err)
}
