// Command measure counts properties that a reader of the code notices: how long functions are, how many methods a
// type has, how much of the code is comments, and which words these use. The command reads the Go files below a
// directory, except those in testdata and in separate modules.
//
//	go run ./tools/measure [-o json] [-clones] [DIRECTORY…]
//
// Each directory is a row. Without directories, there is a row for the whole and a row for each package. To compare
// with an earlier commit, pass a worktree of that commit.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
)

func main() {
	form := flag.String("o", "table", "output: table or json")
	clones := flag.Bool("clones", false, "list the groups of clones")
	flag.Parse()
	if err := measure(os.Stdout, *form, *clones, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "measure:", err)
		os.Exit(1)
	}
}

func measure(out io.Writer, form string, clones bool, dirs []string) error {
	if form != "table" && form != "json" {
		return fmt.Errorf("-o %s: want table or json", form)
	}
	rows, err := measured(dirs)
	if err != nil {
		return err
	}
	// Only for the first row: without directories this is the whole.
	if clones {
		for _, g := range rows[0].groups {
			fmt.Fprintln(out, strings.Join(g, "  "))
		}
		return nil
	}
	if form == "json" {
		encode := json.NewEncoder(out)
		for _, r := range rows {
			if err := encode.Encode(r); err != nil {
				return err
			}
		}
		return nil
	}
	return printTable(out, rows)
}

// measured returns a row for each directory. Without directories, there is a row for the present directory and for
// each package below.
func measured(dirs []string) (rows []*figures, err error) {
	if len(dirs) > 0 {
		for _, dir := range dirs {
			files, err := load(dir)
			if err != nil {
				return nil, err
			}
			rows = append(rows, count(dir, files))
		}
		return rows, nil
	}
	files, err := load(".")
	if err != nil {
		return nil, err
	}
	rows = append(rows, count("all", files))
	for dir, part := range byDir(files) {
		rows = append(rows, count(dir, part))
	}
	return rows, nil
}

func printTable(out io.Writer, rows []*figures) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w,
		"\tfiles\tlines\ttest/code\tfunction lines\tover 60\tcomplexity\tinterface\tmethods\tcomment\tlocal "+
			"name\tclones\ttell\twhat\tone\tit\tbecause\t")
	for _, r := range rows {
		fmt.Fprintf(w,
			"%s\t%d\t%d\t%.2f\t%d/%d/%d\t%.1f %%\t%d\t%d\t%s %d\t%.0f %%\t%.1f\t%.2f\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t\n",
			r.Name, r.Files, r.Lines, r.TestShare, r.Median, r.P90, r.Longest, r.Over60, r.Complexity, r.Interface,
			r.Receiver, r.Methods, r.Comments, r.LocalName, r.Clones, r.Words["tell"], r.Words["what"], r.Words["one"],
			r.Words["it"], r.Words["because"])
	}
	return w.Flush()
}
