package soak_test

import (
	"bufio"
	"context"
	"io"
	"io/fs"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/internal/pause"
)

// view polls the status of a dashboard, as a page does, until ctx ends.
func (s *system) view(ctx context.Context, p *process) {
	for pause.For(ctx, time.Second) == nil {
		s.count("status", s.get(ctx, p.ui+"/status") == nil)
	}
}

// listen listens to the events of a dashboard, and again whenever they end.
func (s *system) listen(ctx context.Context, p *process) {
	for pause.For(ctx, time.Second) == nil {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.ui+"/events", nil)
		if err != nil {
			return
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			continue
		}
		lines := bufio.NewScanner(answer.Body)
		lines.Buffer(nil, 8<<20)
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "event:") {
				s.count("events", true)
			}
		}
		answer.Body.Close()
	}
}

func (s *system) count(what string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !ok {
		what += " (no answer)"
	}
	s.asked[what]++
}

func (s *system) get(ctx context.Context, url string) error {
	_, err := fetch(ctx, url)
	return err
}

func fetch(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}

// measure takes a sample of everything. A process that is being started has none.
func (s *system) measure(ctx context.Context) {
	at := time.Since(s.begun)
	for _, p := range s.processes {
		values := map[string]float64{}
		var err error
		if values["memory"], err = resident(p.pid()); err != nil {
			continue
		}
		if values["files"], err = openFiles(p.pid()); err != nil {
			continue
		}
		text, err := fetch(ctx, p.ui+"/metrics")
		if err != nil {
			continue
		}
		values["goroutines"], values["heap"] = gauge(text, "go_goroutines"), gauge(text, "go_memstats_heap_inuse_bytes")
		for _, figure := range s.series {
			if figure.process == p.name {
				figure.samples = append(figure.samples, sample{at, values[figure.figure]})
			}
		}
	}
	if lag, err := s.lag(ctx); err == nil {
		s.lags = append(s.lags, sample{at, float64(lag)})
	}
	s.sizes = append(s.sizes, sample{at, s.size()})
}

// gauge is the value of a metric without labels; 0 if there is none.
func gauge(text, name string) float64 {
	_, after, _ := strings.Cut("\n"+text, "\n"+name+" ")
	line, _, _ := strings.Cut(after, "\n")
	value, _ := strconv.ParseFloat(line, 64)
	return value
}

// size is how many bytes the store has on the disk.
func (s *system) size() (bytes float64) {
	_ = filepath.WalkDir(filepath.Join(s.dir, "store"), func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil // removed meanwhile
		}
		if info, err := e.Info(); err == nil && !e.IsDir() {
			bytes += float64(info.Size())
		}
		return nil
	})
	return bytes
}

// lag is how many changes are pending, of all units.
func (s *system) lag(ctx context.Context) (pending int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	client, err := cosmos.Open(ctx, s.endpoint, cosmos.Key(cosmosrest.EmulatorKey), cosmos.Options{})
	if err != nil {
		return 0, err
	}
	defer client.Close()
	container, err := client.Container(ctx, "soak", "leases")
	if err != nil {
		return 0, err
	}
	sources := map[string]*cosmos.Container{units[0]: s.orders, units[1]: s.orders, "events": s.contacts}
	for name, source := range sources {
		leases, err := cosmos.OpenLeases(ctx, container, name, source, cosmos.LeaseOptions{})
		if err != nil {
			return 0, err
		}
		var e changefeed.Estimator
		est, err := e.Measure(ctx, source, leases)
		if err == nil {
			err = est.Total.Err
		}
		if err != nil {
			return 0, err
		}
		pending += est.Total.Pending
	}
	return pending, nil
}
