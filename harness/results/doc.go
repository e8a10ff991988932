// Package results is what a run leaves in a folder, and how it is read again: by a run that goes on, by the merge of shards, by
// comparisons and by anyone's own tools.
//
// The layout, named shatter.results/1:
//
//	journal.jsonl     the run itself: a Header on the first line, then a Sequence a line, appended as they are finished
//	sequences.csv     the same as a table, a row a sequence and allocator, in order of both (Columns)
//	summary.json      the document of `shatter run --json` (shatter.run/1) without its member timing
//	timing.json       that member: all that varies from run to run
//	findings/*.trace  the smallest trace of each signature
//	report.html       the same for people (package reports/html)
//	report.html       all of it as a page, with memory maps to step through (shatter report render)
//
// Everything but the journal follows from the journal, in order of the index. So it does not matter in which order, by how many
// workers, by how many shards or in how many goes the sequences were run: the files have the same bytes.
//
// A journal may end in the middle of a line, when its writer was killed: that line is no sequence yet, and is run again. A fault
// anywhere else is an error. Sizes are bytes, operations are counted from 0.
package results

// Schema is the name and version of the layout. Under one version members and columns are added, never changed.
const Schema = "shatter.results/1"

// The files of a folder.
const (
	JournalFile = "journal.jsonl"
	TableFile   = "sequences.csv"
	SummaryFile = "summary.json"
	TimingFile  = "timing.json"
	FindingsDir = "findings"
)
