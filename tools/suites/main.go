// Command suites compares what the tests of another project's suite did with the list of those that are known to fail,
// and fails if the two differ.
//
//	go run ./tools/suites -list conformance/js/known.txt -results results.ndjson
//	go run ./tools/suites -list conformance/js/known.txt -results results.ndjson -update
//	go run ./tools/suites -list conformance/js/known.txt -results results.ndjson -part
//
// Each line of the results is one test: {"test":NAME,"outcome":"passed"|"failed"|"skipped","message":TEXT}.
// The list has a title line for each reason, and below it the tests that fail for this reason, one on a line:
//
//	tests 254
//	== service-only: stored procedures are not served
//	sproc.spec.js > creates a procedure
//	~ sproc.spec.js > a name that fails only in some runs
//
// With -update the list is written anew: a test that passes is taken out, and a test that fails for the first time is
// put under the class "unsorted", which is refused until you have moved the test to a reason.
// With -part the results are of some tests only: the others may be missing.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	list := flag.String("list", "", "file with the tests that are known to fail")
	results := flag.String("results", "", "file with the outcome of each test, one JSON object on a line")
	update := flag.Bool("update", false, "write the list anew by the results")
	part := flag.Bool("part", false, "the results are of some tests only")
	flag.Parse()
	if err := run(*list, *results, *update, *part); err != nil {
		fmt.Fprintln(os.Stderr, "suites:", err)
		os.Exit(1)
	}
}

// run compares the results with the list, and prints what differs and the sums.
func run(listFile, resultsFile string, update, part bool) error {
	if update && part {
		return fmt.Errorf("-update with -part: want the results of all tests to write %s anew", listFile)
	}
	text, err := os.ReadFile(listFile)
	if err != nil {
		return fmt.Errorf("-list: %w", err)
	}
	known, err := parseList(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", listFile, err)
	}
	in, err := os.Open(resultsFile)
	if err != nil {
		return fmt.Errorf("-results: %w", err)
	}
	defer in.Close()
	got, err := readResults(in)
	if err != nil {
		return fmt.Errorf("%s: %w", resultsFile, err)
	}
	if update {
		known = known.updated(got)
		if err := os.WriteFile(listFile, []byte(known.String()), 0o644); err != nil {
			return err
		}
		fmt.Printf("wrote %s\n", listFile)
	}
	findings := known.compare(got, part)
	for _, f := range findings {
		fmt.Println(f)
	}
	fmt.Print(known.sums(got))
	if len(findings) > 0 {
		return fmt.Errorf("%d differences to %s: mend the server, or write the list anew with UPDATE=1 "+
			"(make conformance-js UPDATE=1) and give each test under \"unsorted\" its reason", len(findings), listFile)
	}
	return nil
}
