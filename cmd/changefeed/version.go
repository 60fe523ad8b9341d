package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cmd/changefeed/internal/notices"
)

// The version comes from the build information that the Go linker writes into every binary, so no build script has to
// set a version.

// build describes the sources from which the binary was built.
type build struct {
	Version  string `json:"version"` // of the module; (devel) for a build from its sources
	Commit   string `json:"commit,omitempty"`
	Modified bool   `json:"modified,omitempty"` // changed since the commit
	Time     string `json:"time,omitempty"`     // of the commit
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

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
			b.Commit = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		case "vcs.time":
			b.Time = s.Value
		}
	}
	return b
}

// versionCommand is the command version.
func versionCommand() *cobra.Command {
	var form *choice
	var licences bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show what this binary was built from",
		Long: `Show what this binary was built from: the version of the module, the commit, and the
release of Go. A report of a defect wants all three.

With --licenses it shows the licences and notices of the modules that are in it.`,
		Example: `  changefeed version
  changefeed version -o json | jq -r .commit
  changefeed version --licenses | less`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := thisBuild()
			if licences {
				_, err := io.WriteString(cmd.OutOrStdout(), notices.Text)
				return err
			}
			if form.value == "json" {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(b)
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), b)
			return err
		},
	}
	form = output(cmd)
	cmd.Flags().BoolVar(&licences, "licenses", false, "show the licences of the modules in this binary")
	cmd.MarkFlagsMutuallyExclusive("licenses", "output")
	return cmd
}

// String returns the line for people.
func (b build) String() string {
	text := "changefeed " + b.Version
	if b.Commit != "" {
		text += ", commit " + b.Commit
	}
	if b.Modified {
		text += " and changes"
	}
	return text + ", " + b.Go + ", " + b.Platform
}
