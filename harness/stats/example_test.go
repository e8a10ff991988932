package stats_test

import (
	"fmt"

	"github.com/shatter-gpu/shatter/harness/stats"
)

func ExampleSummarize() {
	values := []float64{1.02, 1.1, 1, 1.05, 1.31, 1.08, 1.02, 1.2}
	s, err := stats.NewSample(stats.Measure{Name: "kappa", Unit: "1"}, stats.Population{Label: "serving"}, values)
	if err != nil {
		fmt.Println(err)
		return
	}
	summary, err := stats.Summarize(s, stats.DefaultLevel)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("median", summary.Median.Text("1"))
	fmt.Println("p95", summary.P95.Text("1"))
	fmt.Println(summary.Warnings[0])
	// Output:
	// median 1.05 (1 to 1.31)
	// p95 1.31, at least 1.1 (n = 8 gives no upper limit)
	// n = 8: no upper limit for the p95 (n = 72 would give one)
}

func ExampleSurvival() {
	lifetimes := []stats.Lifetime{{Served: 100}, {Served: 40, OOM: true}, {Served: 100}, {Served: 100}}
	curve, err := stats.Survival(lifetimes, []int{40, 41, 100}, stats.DefaultLevel)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, point := range curve.Points {
		fmt.Printf("%d operations: %.2f (%.2f to %.2f)\n", point.Operations, *point.Share, *point.Lower, *point.Upper)
	}
	// Output:
	// 40 operations: 1.00 (0.51 to 1.00)
	// 41 operations: 0.75 (0.30 to 0.95)
	// 100 operations: 0.75 (0.30 to 0.95)
}
