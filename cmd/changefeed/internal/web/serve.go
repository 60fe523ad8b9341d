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

// Serve serves a store until ctx ends, and then finishes the requests in hand. It calls ready when clients may connect.
// Wrong options leave nothing behind, neither a store nor a certificate. Addresses are listened on when the store is open,
// so that a client that connects is answered.
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
		// That is the end which was asked for, and no failure.
		o.Log.Info("ended while the store was being opened")
		return nil
	case errors.Is(err, docstore.ErrInUse):
		return fmt.Errorf("%w; one process at a time has a store open: end the other one, or if it is changefeed serve, use its address", err)
	case err != nil:
		return err
	}
	defer func() { err = cmp.Or(err, db.Close()) }()
	// A store that was killed is whole, but an operator should know that it was.
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

// store is the options of the store.
func (o *Options) store() docstore.Options {
	return docstore.Options{InMemory: o.Dir == "", NoSync: o.NoSync, CacheBytes: o.Cache}
}

// equip gives each site its handler, log and certificate.
func (o *Options) equip(sites Sites, db *docstore.DB, options cosmosrest.Options, cert tls.Certificate) error {
	for _, w := range sites {
		// A dedicated gateway is one by its address: nothing in a request says so.
		options.Dedicated = w.Dedicated
		handler, err := cosmosrest.New(db, options)
		if err != nil {
			return err
		}
		w.Server.Handler = handler
		w.Server.ErrorLog = slog.NewLogLogger(&SparseLog{Handler: o.Log.Handler()}, slog.LevelInfo) // a client that does not trust the certificate
		if !o.Plain {
			w.Server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}}
		}
	}
	return nil
}

// retain sets the retention of a store, unless it keeps the one that it has: a restart without the flag must not throw
// versions away.
func (o *Options) retain(ctx context.Context, db *docstore.DB) error {
	if _, set := db.Retention(); set && o.Kept {
		return nil
	}
	return db.SetRetention(ctx, o.Retention)
}

// certificateFolder is where the certificate of a store is kept.
const certificateFolder = "tls"

// certificate is the server's certificate, and the file that clients must trust if it was
// made here. That of a store in memory is removed at the end.
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
	// The certificate stays with the store, so that clients who trust it still do after a restart.
	dir := filepath.Join(o.Dir, certificateFolder)
	if o.Dir == "" {
		if dir, err = os.MkdirTemp("", "changefeed-tls-"); err != nil {
			return cert, "", drop, fmt.Errorf("make directory of the certificate: %w", err)
		}
		drop = func() { _ = os.RemoveAll(dir) } // nothing can be done about it
	}
	if cert, path, err = cosmosrest.Certificate(dir); err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		drop()
	}
	return cert, path, drop, err
}

// sites listens on the addresses. All share one guard, since they share the process's
// descriptors.
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
