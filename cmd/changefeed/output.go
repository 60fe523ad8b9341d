package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
)

// The output of commands: the flags -o, --fields and --quiet, and the report that they describe.

// choice is a flag with a fixed set of values.
type choice struct {
	value   string
	allowed []string
}

// String returns the value.
func (c *choice) String() string { return c.value }

// Type returns the flag's placeholder in the help: the allowed values.
func (c *choice) Type() string { return strings.Join(c.allowed, "|") }

// Words returns the values that a shell can complete.
func (c *choice) Words() []string { return c.allowed }

// Set accepts one of the allowed values.
func (c *choice) Set(text string) error {
	if slices.Contains(c.allowed, text) {
		c.value = text
		return nil
	}
	last := len(c.allowed) - 1
	return fmt.Errorf("want %s or %s", strings.Join(c.allowed[:last], ", "), c.allowed[last])
}

// outputFlag is the name of the flag for the form of the results.
const outputFlag = "output"

// formFlag is the flag -o, with the report whose form it is.
type formFlag struct {
	choice
	report *report.Report
}

// Set implements [pflag.Value].
func (f *formFlag) Set(text string) error {
	if text == string(report.Text) && f.allowed[0] == string(report.Table) {
		text = string(report.Table) // a table is the text of rows
	}
	if err := f.choice.Set(text); err != nil {
		return err
	}
	f.report.Form, f.report.Default = report.Form(text), false
	return nil
}

// addOutput adds the flag -o with some forms, the default first, and returns the report of the command.
func addOutput(cmd *cobra.Command, forms ...report.Form) *report.Report {
	f := &formFlag{report: &report.Report{Form: forms[0], Default: true}}
	for _, form := range forms {
		f.allowed = append(f.allowed, string(form))
	}
	f.value = f.allowed[0]
	cmd.Flags().VarP(f, outputFlag, "o", "form of the output")
	return f.report
}

// output adds the flag -o of a command with a single result, or with results that are no rows.
func output(cmd *cobra.Command) *report.Report {
	return addOutput(cmd, report.Text, report.JSON, report.YAML)
}

// outputRows adds the flags -o and --fields of a command with rows of some kinds. Without kinds the rows are the
// user's documents, and may have any fields.
func outputRows(cmd *cobra.Command, kinds ...report.Kind) *report.Report {
	r := addOutput(cmd, report.Table, report.JSON, report.YAML, report.CSV)
	r.Kinds = kinds
	cmd.Flags().StringSliceVar(&r.Fields, "fields", nil,
		"only these `fields` of each row, such as id,address.city")
	return r
}

// noticesOf returns the function that writes notices of a command: into the report, or as lines if there is no report.
func noticesOf(cmd *cobra.Command) func(format string, args ...any) {
	if flag := cmd.Flags().Lookup(outputFlag); flag != nil {
		if f, ok := flag.Value.(*formFlag); ok {
			return f.report.Notice
		}
	}
	quiet, _ := cmd.Flags().GetBool("quiet")
	return (&report.Report{Command: cmd.CommandPath(), Err: cmd.ErrOrStderr(), Quiet: quiet}).Notice
}

// prepareReport completes the report of a command whose flags were read; nil if the command has none.
func prepareReport(cmd *cobra.Command) error {
	r := reportOf(cmd)
	if r == nil {
		return nil
	}
	r.Command, r.Out, r.Err = cmd.CommandPath(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	r.Quiet, _ = cmd.Flags().GetBool("quiet") // false if there is no such flag
	return r.Check()
}

// reportOf returns the report of a command; nil if the command has none.
func reportOf(cmd *cobra.Command) *report.Report {
	flag := cmd.Flags().Lookup(outputFlag)
	if flag == nil {
		return nil
	}
	if f, ok := flag.Value.(*formFlag); ok {
		return f.report
	}
	return nil
}

// wantsJSON reports whether a command line, which may be wrong, asks for errors as JSON. As of any flag, the last value
// counts.
func wantsJSON(args []string) bool {
	form := ""
	for i, arg := range args {
		if arg == "--" {
			break
		}
		if given, ok := formIn(arg, args[i+1:]); ok {
			form = given
		}
	}
	return form == string(report.JSON)
}

// switches are the short names of flags without a value, which may stand before -o in the same word, as in -qo json.
const switches = "qvfh"

// formIn returns the form of the output that a word of a command line gives, together with the words that follow.
func formIn(word string, follow []string) (form string, ok bool) {
	value, long := strings.CutPrefix(word, "--"+outputFlag)
	short := false
	if !strings.HasPrefix(word, "--") && strings.HasPrefix(word, "-") {
		value, short = strings.CutPrefix(strings.TrimLeft(word[1:], switches), "o")
	}
	switch {
	case !long && !short, long && value != "" && value[0] != '=':
		return "", false
	case value != "":
		return strings.TrimPrefix(value, "="), true
	case len(follow) > 0:
		return follow[0], true
	}
	return "", false
}
