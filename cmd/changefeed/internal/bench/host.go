package bench

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Servers in separate processes: changefeed serve, and the echo server that is its baseline. So their memory and
// processor time can be distinguished from those of the load generator, and the load generator cannot use the
// server's memory.

// host is a server in a separate process.
type host struct {
	cmd     *exec.Cmd
	addr    string
	key     []byte
	sockets []*socket
}

// How long a server may take to print its first line, and to end.
const (
	hostStart = 10 * time.Second
	hostStop  = 10 * time.Second
)

// EchoName is the command of the binary that calls [ServeEcho]. Benchmarks start this command, and serve, by running
// their own executable again, because that binary always exists.
const EchoName = "bench-echo"

// startHost runs a command of a binary of changefeed, of this or another build, and opens connections to this server.
// The command prints the JSON of its endpoint and key as its first line.
func startHost(ctx context.Context, binary string, sockets int, args ...string) (_ *host, err error) {
	h := &host{cmd: exec.CommandContext(ctx, binary, args...)}
	h.cmd.Stderr = os.Stderr
	// When ctx ends, the server gets a signal to end and is not killed, so the server closes its store.
	h.cmd.Cancel = func() error { return h.cmd.Process.Signal(syscall.SIGTERM) }
	h.cmd.WaitDelay = hostStop
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := h.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s %s: %w", binary, args[0], err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.Close())
		}
	}()
	if err := h.readFirstLine(out); err != nil {
		return nil, err
	}
	for range sockets {
		w, err := dialSocket(h.addr, h.key)
		if err != nil {
			return nil, err
		}
		h.sockets = append(h.sockets, w)
	}
	return h, nil
}

// readFirstLine reads the first line, which the server prints when clients may connect.
func (h *host) readFirstLine(out io.Reader) error {
	// A server that cannot start must not hang the benchmark. The pipe of os/exec is a file, so a deadline is
	// possible.
	if pipe, ok := out.(*os.File); ok {
		if err := pipe.SetReadDeadline(time.Now().Add(hostStart)); err != nil {
			return err
		}
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("wait for the server: %w", err)
	}
	var said struct {
		Endpoint, Key string
	}
	if err := json.Unmarshal(line, &said); err != nil {
		return fmt.Errorf("server said %q: %w", line, err)
	}
	at, err := url.Parse(said.Endpoint)
	if err != nil {
		return err
	}
	h.addr = at.Host
	h.key, err = base64.StdEncoding.DecodeString(said.Key)
	return err
}

// Close ends the server and waits for its end.
func (h *host) Close() error {
	for _, w := range h.sockets {
		_ = w.Close() // then the server closes its end too
	}
	if err := h.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	if err := h.cmd.Wait(); err != nil {
		return fmt.Errorf("end %s: %w", h.cmd.Args[1], err)
	}
	return nil
}

// processorTime returns the processor time of the server, or 0 if unknown.
func (h *host) processorTime() time.Duration {
	const clockTicks = 100 // per second, on every Linux that Go runs on
	b, err := os.ReadFile(h.readProcFile("stat"))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(b), ") ") // after the name, which may contain spaces
	fields := strings.Fields(rest)
	// The first field here is the third of proc(5), so fields 11 and 12 are its 14th and 15th: utime and stime.
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * time.Second / clockTicks
}

// memoryNow returns the server's memory in bytes, or 0 if unknown.
func (h *host) memoryNow() int64 { return h.readFootprint().resident }

// readFootprint returns the server's present memory, and its highest memory so far.
func (h *host) readFootprint() (m footprint) {
	b, err := os.ReadFile(h.readProcFile("status"))
	if err != nil {
		return m
	}
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(line, ":")
		kb, _, _ := strings.Cut(strings.TrimSpace(value), " ")
		n, _ := strconv.ParseInt(kb, 10, 64) // fails for other lines, which are not used
		switch name {
		case "VmRSS":
			m.resident = n << 10
		case "VmHWM":
			m.peak = n << 10
		case "RssAnon":
			m.own = n << 10
		}
	}
	return m
}

// footprint is the memory of a process in bytes, or 0 if unknown.
type footprint struct {
	resident, peak int64
	own            int64 // part of resident without pages of files, such as the binary
}

// String returns the memory in megabytes.
func (m footprint) String() string {
	return fmt.Sprintf("%d MB, %d of them pages of the binary and other files; %d MB at most", m.resident>>20,
		(m.resident-m.own)>>20, m.peak>>20)
}

// readProcFile returns the content of a file in Linux's /proc directory of the process.
func (h *host) readProcFile(name string) string {
	return filepath.Join("/proc", strconv.Itoa(h.cmd.Process.Pid), name)
}

// ServeEcho serves the baseline of the server's benchmarks until ctx ends: the minimum work of net/http for as many
// bytes. ServeEcho prints its endpoint in the same form as changefeed serve.
func ServeEcho(ctx context.Context, out io.Writer) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	server := &http.Server{Handler: http.HandlerFunc(echo), ReadHeaderTimeout: socketTimeout}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	fmt.Fprintf(out, "{\"endpoint\":\"http://%s/\"}\n", listener.Addr())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// echo answers with the body of the request, or with as many bytes as the path says.
func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 4<<20))
	if n, bad := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/")); bad == nil {
		body = prosePage(n)
	}
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	w.Header()["Content-Type"] = []string{"application/json"}
	w.Header()["Content-Length"] = []string{strconv.Itoa(len(body))}
	_, _ = w.Write(body) // a client that has gone needs no answer
}

// prosePage returns n bytes of text.
func prosePage(n int) []byte {
	text := prose()
	if n <= len(text) {
		return []byte(text[:n])
	}
	page := make([]byte, 0, n)
	for len(page) < n {
		page = append(page, text[:min(len(text), n-len(page))]...)
	}
	return page
}
