package web

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/internal/host/usage"
)

// Serve serves a store until ctx ends, and then finishes running requests. Serve calls ready when clients may
// connect. Invalid options leave neither a store nor a certificate behind. Serve listens on the addresses after the
// store was opened, so a client that connects gets an answer.
func (o *Options) Serve(ctx context.Context, ready func(Endpoints) error) (err error) {
	options, err := o.server(ctx)
	if err != nil {
		return usage.Error{Err: err}
	}
	if _, err := cosmosrest.New(nil, options); err != nil {
		return usage.Error{Err: err}
	}
	db, err := docstore.OpenContext(ctx, o.Dir, o.store())
	switch {
	case err != nil && ctx.Err() != nil:
		// The user has ended the server, so this is no failure.
		o.Log.Info("ended while the store was being opened")
		return nil
	case errors.Is(err, docstore.ErrInUse):
		return fmt.Errorf("%w; one process at a time has a store open: end the other one, or if it is changefeed serve, use its address", err)
	case err != nil:
		return err
	}
	defer func() { err = cmp.Or(err, db.Close()) }()
	// A killed store is intact, but the operator should know about the kill.
	if found := db.Recovery(); found.Log != "" {
		o.Log.Info(found.String())
	}
	if err := o.retain(ctx, db); err != nil {
		return err
	}
	sites, err := o.sites(ctx)
	if err != nil {
		return err
	}
	defer sites.Close()
	cert, path, drop, err := o.certificate()
	if err != nil {
		return err
	}
	defer drop()
	if err := o.equip(sites, db, options, cert); err != nil {
		return err
	}
	return sites.Serve(ctx, func() error {
		e, err := o.endpoints(sites, path)
		if err != nil {
			return err
		}
		return ready(e)
	})
}

// store returns the options of the store.
func (o *Options) store() docstore.Options {
	return docstore.Options{InMemory: o.Dir == "", NoSync: o.NoSync, CacheBytes: o.Cache}
}

// equip gives each site its handler, log and certificate.
func (o *Options) equip(sites Sites, db *docstore.DB, options cosmosrest.Options, cert tls.Certificate) error {
	for _, w := range sites {
		// Only the address makes a gateway dedicated: requests do not show this.
		options.Dedicated = w.Dedicated
		handler, err := cosmosrest.New(db, options)
		if err != nil {
			return err
		}
		w.Server.Handler = handler
		w.Server.ErrorLog = slog.NewLogLogger(&SparseLog{Handler: o.Log.Handler()}, slog.LevelInfo) // for example, a client does not trust the certificate
		if !o.Plain {
			w.Server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}}
		}
	}
	return nil
}

// retain sets the retention of a store, unless the store keeps its present retention: a restart without the flag must
// not delete versions.
func (o *Options) retain(ctx context.Context, db *docstore.DB) error {
	if _, set := db.Retention(); set && o.Kept {
		return nil
	}
	return db.SetRetention(ctx, o.Retention)
}

// certificateFolder is the folder in which the certificate of a store is kept.
const certificateFolder = "tls"

// certificate returns the server's certificate. If the certificate was created here, path is the file that clients
// must trust. The certificate of a store in memory is removed at the end.
func (o *Options) certificate() (cert tls.Certificate, path string, drop func(), err error) {
	drop = func() {}
	switch {
	case o.Plain:
		return cert, "", drop, nil
	case o.Cert != "":
		if cert, err = tls.LoadX509KeyPair(o.Cert, o.KeyFile); err != nil {
			err = fmt.Errorf("read --cert %s and --key-file %s: %w", o.Cert, o.KeyFile, err)
		}
		return cert, "", drop, err
	}
	// The certificate is kept with the store, so clients still trust the server after a restart.
	dir := filepath.Join(o.Dir, certificateFolder)
	if o.Dir == "" {
		if dir, err = os.MkdirTemp("", "changefeed-tls-"); err != nil {
			return cert, "", drop, fmt.Errorf("make directory of the certificate: %w", err)
		}
		drop = func() { _ = os.RemoveAll(dir) } // an error here is ignored
	}
	if cert, path, err = cosmosrest.Certificate(dir); err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		drop()
	}
	return cert, path, drop, err
}

// sites listens on the addresses. All sites share a guard, because they share the process's descriptors.
func (o *Options) sites(ctx context.Context) (all Sites, err error) {
	guard := cosmosrest.NewGuard(Connections())
	for _, at := range []struct {
		flag, address string
		dedicated     bool
	}{{"listen", o.Listen, false}, {"dedicated-gateway", o.Dedicated, true}} {
		if at.address == "" {
			continue
		}
		if err := all.Listen(ctx, guard, at.address, at.dedicated); err != nil {
			all.Close()
			return nil, fmt.Errorf("--%s is %s: %w: want a free address of this machine, such as 127.0.0.1:0", at.flag, at.address, cmp.Or(errors.Unwrap(err), err))
		}
	}
	return all, nil
}
