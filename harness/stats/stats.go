// Package stats turns one number per sequence into statements about a population of sequences: quantiles, shares,
// survival curves and paired comparisons, each with an interval that says how little n sequences show.
//
// In go plain numbers with a description of where they came from; out come results that carry their own doubts
// (Warnings) and their exact JSON. The package knows nothing of allocators, traces or devices, reads no clock and
// draws its random numbers (Mean) from a fixed seed: the same numbers give the same bytes, however they were split into shards.
//
// Every interval assumes that the sequences are independent draws from the population named beside them. Results of
// a fuzzer or a hunt are not such draws, and no interval makes them so.
//
// Too few values are shown, never fatal: a limit that the data cannot support is absent (null in JSON, 'n = 20 gives
// no upper limit' in text). Errors are for callers' mistakes: a value that is no number, a level outside (0, 1).
package stats

import (
	"errors"
	"fmt"
)

// DefaultLevel is the confidence level to use where nobody asked for another one.
const DefaultLevel = 0.95

var (
	// ErrNotFinite: a value is NaN or infinite. One of them would poison every sum and have no place in an order.
	ErrNotFinite = errors.New("value is not a finite number")
	// ErrMismatch: samples of different measures or populations were to be merged.
	ErrMismatch = errors.New("samples are not of one measure and population")
	// ErrRange: an argument lies outside its documented range.
	ErrRange = errors.New("out of range")
)

// checkLevel refuses confidence levels outside the open interval (0, 1); gonum would answer them with infinities.
func checkLevel(level float64) error {
	if !(level > 0 && level < 1) {
		return fmt.Errorf("stats: level %v: %w: 0 < level < 1", level, ErrRange)
	}
	return nil
}

// checkProbability refuses 0 and 1 too: those quantiles are the smallest and largest value a population could
// ever give, and no finite sample limits them.
func checkProbability(p float64) error {
	if !(p > 0 && p < 1) {
		return fmt.Errorf("stats: quantile %v: %w: 0 < p < 1", p, ErrRange)
	}
	return nil
}

func pointer(v float64) *float64 { return &v }
