package main

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/spf13/cobra"
)

// errParentGone is the cause of a context that ends because the standard input has ended.
var errParentGone = errors.New("standard input has ended")

// untilStdinName is the name of the flag that untilStdinFlag adds.
const untilStdinName = "until-stdin-closes"

// untilStdinFlag adds the flag --until-stdin-closes to a command that runs until a stop. A parent process holds the
// other end of the pipe, and the system closes that end, however the parent ends, also after a kill.
func untilStdinFlag(cmd *cobra.Command) {
	isSet := cmd.Flags().Bool(untilStdinName, false, "end with the parent: when standard input ends")
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !*isSet {
			return run(cmd, args)
		}
		ctx, end := context.WithCancelCause(cmd.Context())
		defer end(nil)
		cmd.SetContext(ctx)
		go func() { // a read cannot be interrupted: the goroutine ends with the input or the process
			_, _ = io.Copy(io.Discard, os.Stdin) // an error is an end too
			end(errParentGone)
		}()
		if err := run(cmd, args); !errors.Is(err, errParentGone) {
			return err
		}
		return nil // ended during the start, as intended
	}
}
