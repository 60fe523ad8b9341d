package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cmd/changefeed/internal/manual"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
)

// manCommand is the command man.
func manCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "man DIR",
		GroupID: groupTools,
		Short:   "Write the help of all commands as pages for man(1)",
		Long: `Each command and each topic is a file in DIR, such as changefeed-tail.1. A missing DIR is made. Files of
the same names are replaced.`,
		Example: `  changefeed man ~/.local/share/man/man1
  changefeed man pages && man -l pages/changefeed-tail.1`,
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := args[0]
			err := os.MkdirAll(dir, 0o755)
			switch {
			case errors.Is(err, syscall.ENOTDIR):
				return usage.Error{Err: fmt.Errorf("DIR is %s: it is a file: want a directory", dir)}
			case err != nil:
				return usage.Path("DIR", dir, err)
			}
			return writePages(dir, cmd.Root())
		},
	}
}

// writePages writes the pages of a command and of all subcommands.
func writePages(dir string, cmd *cobra.Command) error {
	var related []string
	if cmd.HasParent() {
		related = append(related, cmd.Parent().CommandPath())
	}
	for _, below := range cmd.Commands() {
		if !below.IsAvailableCommand() && !below.IsAdditionalHelpTopicCommand() {
			continue
		}
		related = append(related, below.CommandPath())
		if err := writePages(dir, below); err != nil {
			return err
		}
	}
	page := pageOf(cmd)
	text := page.Roff(thisBuild().Version, related)
	if err := os.WriteFile(filepath.Join(dir, manual.PageName(page.Name)+".1"), []byte(text), 0o644); err != nil {
		return fmt.Errorf("write manual page: %w", err)
	}
	return nil
}
