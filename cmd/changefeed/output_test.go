package main

import (
	"encoding/json"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// A script passes -o json to any command, and nobody looks at a command to learn whether the flag is there.
func TestEachCommandHasAFormOfItsOutput(t *testing.T) {
	var below func(cmd *cobra.Command)
	below = func(cmd *cobra.Command) {
		for _, c := range cmd.Commands() {
			below(c)
		}
		writesNoResult := cmd.Name() == "man" || cmd.Name() == "health" ||
			cmd.HasParent() && cmd.Parent().Name() == "completion"
		if cmd.HasSubCommands() || cmd.Hidden || !cmd.Runnable() || cmd.Name() == "help" || writesNoResult {
			return
		}
		if flag := cmd.Flags().Lookup(outputFlag); flag == nil || !strings.Contains(flag.Value.Type(), "json") {
			t.Errorf("%s has no -o json", cmd.CommandPath())
		}
	}
	for _, c := range commands() {
		below(c)
	}
}

// An error is an object with its code, wherever the command line is wrong.
func TestAnErrorIsAnObjectIfTheOutputIsJSON(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none")
	for _, tt := range []struct {
		args       []string
		code, hint string
		exit       int
	}{
		{[]string{"tail", "--db", missing, "--container", "c", "-o", "json"}, "missing", "", exitMissing},
		{[]string{"tail", "-o", "json", "--nope"}, "usage", "See changefeed tail --help.", exitUsage},
		{[]string{"tail", "--nope", "--output=json"}, "usage", "See changefeed tail --help.", exitUsage},
		{[]string{"nope", "-ojson"}, "usage", "See changefeed --help.", exitUsage},
		{[]string{"tail", "-qo", "json", "--nope"}, "usage", "", exitUsage},
		{[]string{"tail", "-vqojson", "--nope"}, "usage", "", exitUsage},
		{[]string{"tail", "-vo=json", "--nope"}, "usage", "", exitUsage},
		{[]string{"tail", "-o", "table", "--output", "json", "--nope"}, "usage", "", exitUsage},
	} {
		var errs said
		exit := execute(t.Context(), tt.args, io.Discard, &errs)
		var got struct {
			Kind, Error, Code string
			Schema            int
			Hint              *string
		}
		if err := json.Unmarshal([]byte(errs.String()), &got); err != nil || exit != tt.exit || got.Kind != "error" ||
			got.Code != tt.code || got.Error == "" || got.Schema != 1 ||
			tt.hint != "" && (got.Hint == nil || *got.Hint != tt.hint) {
			t.Errorf("%q: exit code %d, %s, %v", tt.args, exit, errs.String(), err)
		}
	}
	for _, args := range [][]string{
		{"run", "--", "jq", "-o", "json"}, // the flags of a program
		{"bench", "-dojson"},              // the value of another flag
		{"tail", "-o", "json", "-o", "table"}, {"tail", "-o"},
	} {
		if wantsJSON(args) {
			t.Errorf("%q is taken for a wish for JSON", args)
		}
	}
}
