// Package reports is what a run says: a model that is the JSON document as it is, and texts for people made from it.
//
// In go sequences and results of the harness; out come documents. Everything that varies from run to run, such as times,
// stands in members named timing: two runs of one seed are byte-identical without them. The schema of each document has a
// name with a version ("shatter.run/1"); members are added under the same version, never changed or removed.
//
// Packages below: chart draws diagrams as SVG, recording keeps what an allocator held after every operation, and html makes
// pages of them.
package reports
