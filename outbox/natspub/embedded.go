package natspub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/millrace/changefeed/internal/filelock"
)

// ErrInUse: another process, or another publisher of this process, uses the directory.
var ErrInUse = errors.New("directory of a NATS server is in use")

// Embedded makes a publisher to a server in this process, which keeps the stream in a directory. Consumers in this
// process use [Publisher.Conn]; consumers in other programs need [Options.Listen]. Embedded changes the stream to your
// options. If another server uses the directory, the error is [ErrInUse].
func Embedded(ctx context.Context, dir string, o Options) (*Publisher, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	s, err := start(dir, o)
	if err != nil {
		return nil, fmt.Errorf("NATS server in %s: %w", dir, err)
	}
	o.NATS = append([]nats.Option{nats.InProcessServer(s.server)}, o.NATS...)
	p, err := connect("", o)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("NATS server in %s: %w", dir, err), s.close())
	}
	p.server = s
	if err := p.ensureStream(ctx, true); err != nil {
		return nil, errors.Join(fmt.Errorf("stream %s of the NATS server in %s: %w", o.Stream, dir, err), p.Close())
	}
	return p, nil
}

// embedded is a server in this process.
type embedded struct {
	server *server.Server
	lock   io.Closer
	url    string
	closed sync.Once
}

const (
	maxPayload = 4 << 20 // an event may be as large as a document, which is 2 MB
	startup    = time.Minute
)

// serverOptions returns the options of an embedded server.
func (o Options) serverOptions(dir string) (*server.Options, error) {
	opts := &server.Options{
		ServerName: "changefeed", JetStream: true, StoreDir: dir, MaxPayload: maxPayload, NoSigs: true,
		DisableJetStreamBanner: true,
		DontListen:             o.Listen == "", SyncAlways: o.SyncEvery == 0, SyncInterval: o.SyncEvery,
	}
	if opts.DontListen {
		return opts, nil
	}
	host, port, err := o.listenAddress()
	if err != nil {
		return nil, err
	}
	opts.Host, opts.Port = host, port
	if port == 0 {
		opts.Port = server.RANDOM_PORT
	}
	return opts, nil
}

// start starts a server and locks its directory, because two servers on the same directory would overwrite each other's
// files, and NATS does not notice.
func start(dir string, o Options) (*embedded, error) {
	opts, err := o.serverOptions(dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil { // events are users' data
		return nil, err
	}
	lock, err := filelock.Take(filepath.Join(dir, "lock"))
	if errors.Is(err, filelock.ErrHeld) {
		err = ErrInUse
	}
	if err != nil {
		return nil, err
	}
	s, err := server.NewServer(opts)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	e := &embedded{server: s, lock: lock}
	log := &logger{}
	s.SetLoggerV2(log, false, false, false)
	s.Start()
	if !s.ReadyForConnections(startup) {
		return nil, errors.Join(fmt.Errorf("it does not start: %w", log.lastError()), e.close())
	}
	if o.Listen != "" {
		e.url = s.ClientURL()
	}
	return e, nil
}

func (e *embedded) close() (err error) {
	e.closed.Do(func() {
		e.server.Shutdown()
		e.server.WaitForShutdown()
		err = e.lock.Close()
	})
	return err
}
