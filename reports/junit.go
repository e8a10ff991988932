package reports

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
)

// JUnit is a document in the format that continuous-integration systems read as test results: a finding is a failure, a known issue is
// skipped, and what the infrastructure could not do is an error.
type JUnit struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Name     string       `xml:"name,attr"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Errors   int          `xml:"errors,attr"`
	Skipped  int          `xml:"-"` // the schema (junit-10.xsd of Jenkins' xUnit plugin) has no place for it here
	Seconds  string       `xml:"time,attr,omitempty"`
	Suites   []JUnitSuite `xml:"testsuite"`
}

// JUnitSuite is a group of test cases.
type JUnitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Errors   int         `xml:"errors,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Cases    []JUnitCase `xml:"testcase"`
}

// JUnitCase is a test case; one without a Failure, Error or Skipped has passed.
type JUnitCase struct {
	Name    string     `xml:"name,attr"`
	Class   string     `xml:"classname,attr"`
	Failure *JUnitText `xml:"failure"`
	Error   *JUnitText `xml:"error"`
	Skipped *JUnitText `xml:"skipped"`
	Output  string     `xml:"system-out,omitempty"`
}

// JUnitText is a message of one line, and all there is to say.
type JUnitText struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr,omitempty"`
	Text    string `xml:",chardata"`
}

// Suite adds a group and counts it.
func (j *JUnit) Suite(s JUnitSuite) {
	s.Tests = len(s.Cases)
	for i := range s.Cases {
		s.Cases[i].Class = s.Name
		switch c := &s.Cases[i]; {
		case c.Error != nil:
			s.Errors++
		case c.Failure != nil:
			s.Failures++
		case c.Skipped != nil:
			s.Skipped++
		}
	}
	j.Tests, j.Failures, j.Errors, j.Skipped = j.Tests+s.Tests, j.Failures+s.Failures, j.Errors+s.Errors, j.Skipped+s.Skipped
	j.Suites = append(j.Suites, s)
}

// Write writes the document. Characters that XML does not have become spaces.
func (j *JUnit) Write(w io.Writer) error {
	text, err := xml.MarshalIndent(j, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s%s\n", xml.Header, strings.ReplaceAll(string(text), "\uFFFD", " "))
	return err
}
