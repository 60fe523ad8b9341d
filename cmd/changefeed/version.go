package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cmd/changefeed/internal/notices"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
)

// The version comes from the build information that the Go linker writes into every binary, so no build script has to
// set a version.

// build describes the sources from which the binary was built.
type build struct {
	Version  string  `json:"version" about:"of the module; (devel) for a build from a checkout"`
	Commit   *string `json:"commit" about:"of the sources"`
	Modified bool    `json:"modified" about:"the sources were changed after the commit"`
	Time     *string `json:"time" about:"of the commit"`
	Go       string  `json:"go" about:"the release of Go"`
	Platform string  `json:"platform" about:"operating system and processor"`
}

// ReportedAs implements [report.Value].
func (build) ReportedAs() string { return "build" }

// thisBuild reads the build information. If a binary was built outside a module or repository, part of the
// information is missing.
func thisBuild() build {
	b := build{Version: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Version = info.Main.Version
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = &s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		case "vcs.time":
			b.Time = &s.Value
		}
	}
	return b
}

// versionCommand is the command version.
func versionCommand() *cobra.Command {
	var out *report.Report
	var licences bool
	cmd := &cobra.Command{
		Use:     "version",
		GroupID: groupTools,
		Short:   "Show the version and the origin of this binary",
		Long:    `The version of the module, the commit, and the release of Go. A report of a defect needs all three.`,
		Example: `  changefeed version
  changefeed version -o json | jq -r .commit
  changefeed version --licenses | less`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := thisBuild()
			if licences {
				_, err := io.WriteString(cmd.OutOrStdout(), notices.Text)
				return err
			}
			return out.Object(b, func(w io.Writer) error {
				_, err := fmt.Fprintln(w, b)
				return err
			})
		},
	}
	out = output(cmd)
	cmd.Flags().BoolVar(&licences, "licenses", false, "show the licences of the modules in this binary")
	cmd.MarkFlagsMutuallyExclusive("licenses", "output")
	return cmd
}

// short returns the program and its version.
func (b build) short() string { return "changefeed " + b.Version }

// String returns the line for people.
func (b build) String() string {
	text := "changefeed " + b.Version
	if b.Commit != nil {
		text += ", commit " + *b.Commit
	}
	if b.Modified {
		text += " and changes"
	}
	return text + ", " + b.Go + ", " + b.Platform
}
