package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cmd/changefeed/internal/broker"
	"github.com/millrace/changefeed/cmd/changefeed/internal/instance"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/trigger/program"
	"github.com/millrace/changefeed/trigger/webhook"
)

// The command run with a URL in place of a program: each batch is a POST.

// isURL reports whether the handler of run is a URL.
func isURL(command []string) bool {
	if len(command) == 0 {
		return false
	}
	scheme, _, _ := strings.Cut(strings.ToLower(command[0]), "://")
	return scheme == "http" || scheme == "https"
}

// checkWebhook refuses flags that do not fit a URL, and --post without a URL.
func (o *runOptions) checkWebhook(cmd *cobra.Command, command []string) error {
	switch {
	case !isURL(command) && cmd.Flags().Changed("post"):
		return usage.Flag("post", o.post.value, "none beside a program: it is the form of a POST to a URL")
	case !isURL(command):
		return nil
	case len(command) > 1:
		return usage.Error{Err: fmt.Errorf("%q follows the URL: want the URL alone", command[1])}
	case o.longLived:
		return usage.Error{Err: fmt.Errorf("--long-lived is set, and %s is a URL: want a program", command[0])}
	case o.jobs > 0:
		return usage.Flag("jobs", fmt.Sprint(o.jobs), "none beside a URL: --concurrency limits the requests of a lease")
	}
	return nil
}

// webhookOptions returns the options of a webhook in the flags. The processor, which divides late batches, has to end a
// request first.
func (o *runOptions) webhookOptions() webhook.Options {
	limit := cmp.Or(o.Options.HandlerTimeout, 10*time.Minute) // as the processor does
	return webhook.Options{Form: webhook.Form(o.post.value), Meta: o.form.Meta, Timeout: 2 * limit}
}

// webhookRunner returns the runner of the processor with a URL as the handler.
func (o *runOptions) webhookRunner(i *instance.Instance, url string) (runner, error) {
	options := o.webhookOptions()
	var err error
	if options.Secret, err = broker.WebhookSecret(o.secret); err != nil {
		return nil, usage.Error{Err: err}
	}
	h, err := webhook.New(url, options)
	if err != nil {
		return nil, usage.Error{Err: err}
	}
	return func(ctx context.Context) error {
		defer h.Close()
		return i.Run(ctx, func(*place.Container) (instance.Handler, error) { return program.Watch(ctx, h), nil })
	}, nil
}
