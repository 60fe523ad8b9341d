package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/dashboard"
)

// healthTime is how long a process may take for the answer about its health.
const healthTime = 5 * time.Second

// healthCommand is the command health, for the health check of a container image, in which there is no other program
// that could ask.
func healthCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "health URL",
		GroupID: groupTools,
		Short:   "Check the health of a process with --ui",
		Long: `URL is the address of the dashboard. The exit code is 0 if /healthz answers 200; otherwise the error has
the reasons. If URL has a path, such as /readyz, that is asked.`,
		Example: `  changefeed health http://127.0.0.1:8090
  changefeed health http://127.0.0.1:8090/readyz`,
		RunE: func(cmd *cobra.Command, args []string) error { return askHealth(cmd.Context(), args[0]) },
	}
}

// askHealth returns why a process is not healthy.
func askHealth(ctx context.Context, at string) error {
	u, err := url.Parse(at)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return usage.Error{Err: fmt.Errorf("URL is %s: want that of a dashboard, such as http://127.0.0.1:8090", at)}
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/healthz"
	}
	ctx, cancel := context.WithTimeout(ctx, healthTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("no process answers at %s: %w", u, errors.Unwrap(err))
	}
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusOK {
		return nil
	}
	var h dashboard.Health
	if err := json.NewDecoder(io.LimitReader(answer.Body, 1<<20)).Decode(&h); err != nil {
		return fmt.Errorf("%s answers %s, and is no dashboard", u, answer.Status)
	}
	return errors.New(strings.Join(reasonsOf(&h), "; "))
}

// reasonsOf lists the problems, and the reasons for not being ready.
func reasonsOf(h *dashboard.Health) (all []string) {
	if h.Waiting != nil {
		all = append(all, *h.Waiting)
	}
	for _, c := range h.Checks {
		if c.Why != nil {
			all = append(all, c.Name+": "+*c.Why)
		}
	}
	for _, u := range h.Units {
		switch {
		case u.Why != nil:
			all = append(all, u.Name+": "+*u.Why)
		case !u.Ready && u.Waiting != nil:
			all = append(all, u.Name+": "+*u.Waiting)
		}
	}
	if len(all) == 0 {
		all = append(all, "the process is not healthy, and does not say why")
	}
	return all
}
