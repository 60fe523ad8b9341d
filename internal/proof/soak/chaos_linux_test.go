package soak_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"syscall"
	"time"

	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/internal/pause"
)

// chaos does something to the system every few seconds, until ctx ends, and then leaves all processes running.
func (s *system) chaos(ctx context.Context) (deeds map[string]int) {
	deeds = map[string]int{}
	for pause.For(ctx, time.Second+time.Duration(s.rng.Int64N(int64(8*time.Second)))) == nil {
		p := s.processes[s.rng.IntN(len(s.processes))]
		var deed string
		var err error
		switch s.rng.IntN(8) {
		case 0, 1, 2:
			deed, err = "kill -9 of "+p.name, s.killAndStart(ctx, p)
		case 3, 4:
			deed, err = "freeze of "+p.name, s.freeze(ctx, p)
		case 5, 6:
			deed, err = s.splitOrMerge(ctx)
		default:
			deed, err = "throttling", s.throttle(ctx)
		}
		if err != nil && ctx.Err() == nil {
			s.t.Logf("%v: %s: %v", time.Since(s.begun).Round(time.Second), deed, err)
			deed += " (failed)"
		}
		deeds[deed]++
	}
	return deeds
}

// killAndStart kills a process, and starts it again after up to 5 s.
func (s *system) killAndStart(ctx context.Context, p *process) error {
	if err := p.kill(); err != nil {
		return err
	}
	_ = pause.For(ctx, time.Duration(s.rng.Int64N(int64(5*time.Second)))) // it is started in any case
	return p.start(s.binary)
}

// freeze freezes a process, sometimes for longer than its leases last.
func (s *system) freeze(ctx context.Context, p *process) error {
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	d := time.Duration(s.rng.Int64N(int64(15 * time.Second)))
	if s.rng.IntN(6) == 0 {
		d = 75 * time.Second
	}
	_ = pause.For(ctx, d) // it goes on in any case
	return p.signal(syscall.SIGCONT)
}

// splitOrMerge splits a partition of the orders, or merges two.
func (s *system) splitOrMerge(ctx context.Context) (deed string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	partitions, err := s.orders.Partitions(ctx)
	if err != nil {
		return "look at the partitions", err
	}
	i := s.rng.IntN(len(partitions))
	deed, args := "split", []string{"split", s.endpoint + "/soak/orders", partitions[i].ID}
	if len(partitions) > 5 || len(partitions) > 1 && s.rng.IntN(2) == 0 {
		i = min(i, len(partitions)-2)
		deed, args = "merge", []string{"merge", s.endpoint + "/soak/orders", partitions[i].ID, partitions[i+1].ID}
	}
	said, err := exec.CommandContext(ctx, s.binary, args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, said)
	}
	return deed, err
}

// throttle has the server refuse requests, lose answers and answer late.
func (s *system) throttle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for _, order := range []string{
		`{"container":"soak/orders","status":429,"sub_status":3200,"retry_after":0.5,"times":100}`,
		`{"container":"soak/leases","status":429,"sub_status":3200,"retry_after":1,"times":50}`,
		`{"container":"soak/leases","lose":true,"times":5}`,
		`{"container":"soak/contacts","delay":2,"times":5}`,
	} {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.endpoint+"/_faults", bytes.NewBufferString(order))
		if err != nil {
			return err
		}
		r.Header.Set("Authorization", "Bearer "+cosmosrest.EmulatorKey)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		answer.Body.Close()
		if answer.StatusCode >= http.StatusBadRequest {
			return fmt.Errorf("order %s: %s", order, answer.Status)
		}
	}
	return nil
}
