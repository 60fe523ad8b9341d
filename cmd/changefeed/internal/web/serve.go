package web

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/cosmosrest/faulty"
	"github.com/millrace/changefeed/docstore"
)

// Serve serves a store until ctx ends, and then finishes the requests in hand. It calls ready when clients may connect.
// Wrong options leave nothing behind, neither a store nor a certificate; nor do an address that is taken, and a
// certificate that cannot be read. Addresses are listened on when the store is open, so that a client that connects is
// answered.
func (o *Options) Serve(ctx context.Context, ready func(Endpoints) error) (err error) {
	options, err := o.serverOptions(ctx)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return err
	case err != nil:
		return usage.Error{Err: err}
	}
	if _, err := cosmosrest.New(nil, options); err != nil {
		return usage.Error{Err: errors.New(flagNames.Replace(err.Error()))}
	}
	if o.isNew() {
		if err := o.rehearse(ctx); err != nil {
			return err
		}
	}
	db, err := docstore.OpenContext(ctx, o.Dir, o.storeOptions())
	switch {
	case err != nil && ctx.Err() != nil:
		// The user has ended the server, so this is no failure.
		o.Log.Info("ended while the store was being opened")
		return nil
	case errors.Is(err, docstore.ErrInUse):
		return fmt.Errorf("%w; one process at a time has a store open: end the other one, or if it is changefeed "+
			"serve, use its address", err)
	case err != nil:
		return err
	}
	defer func() { err = cmp.Or(err, db.Close()) }()
	closing, err := o.tellOpened(db)
	if err != nil {
		return err
	}
	defer closing()
	if err := o.setRetention(ctx, db); err != nil {
		return err
	}
	sites, err := o.listenAll(ctx)
	if err != nil {
		return err
	}
	defer sites.Close()
	cert, path, drop, err := o.loadCertificate()
	if err != nil {
		return err
	}
	defer drop()
	if err := o.equipSites(sites, db, options, cert); err != nil {
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

// tellOpened tells whoever wants to know that the store is open, until closing is called.
func (o *Options) tellOpened(db *docstore.DB) (closing func(), err error) {
	// A killed store is intact, but the operator should know about the kill.
	if found := db.Recovery(); found.Log != "" {
		o.Log.Info(found.String())
	}
	if o.Opened == nil {
		return func() {}, nil
	}
	return o.Opened(db)
}

// flagNames puts the names of flags into the errors of the server's options.
var flagNames = strings.NewReplacer(
	"new server: consistency", "--consistency",
	"new server: primary key", "the key of --account-key or $"+KeyVariable,
	"new server: secondary key", "the second --account-key",
	"new server: primary read-only key", "the key of --read-only-key or $"+ReadOnlyVariable,
	"new server: secondary read-only key", "the second --read-only-key",
	"new server: ", "",
)

// isNew reports whether there is no store yet. The other options of a store that is served already may be those of its
// server, and then the error to tell is that the store is in use.
func (o *Options) isNew() bool {
	files, err := os.ReadDir(o.Dir)
	return o.Dir != "" && len(files) == 0 && (err == nil || errors.Is(err, os.ErrNotExist))
}

// rehearse reads the certificate of the user, and listens for a moment, because a server that cannot start must leave
// no store behind.
func (o *Options) rehearse(ctx context.Context) error {
	if o.Cert != "" {
		if _, err := o.readCertificate(); err != nil {
			return err
		}
	}
	sites, err := o.listenAll(ctx)
	sites.Close()
	return err
}

// storeOptions is the options of the store.
func (o *Options) storeOptions() docstore.Options {
	return docstore.Options{InMemory: o.Dir == "", NoSync: o.NoSync, CacheBytes: o.Cache}
}

// equipSites gives each site its handler, log and certificate.
func (o *Options) equipSites(sites Sites, db *docstore.DB, options cosmosrest.Options, cert tls.Certificate) error {
	for _, w := range sites {
		// Only the address makes a gateway dedicated: requests do not show this.
		options.Dedicated = w.Dedicated
		handler, err := cosmosrest.New(db, options)
		if err != nil {
			return err
		}
		w.Server.Handler = o.withFaults(handler)
		// for example, a client does not trust the certificate
		w.Server.ErrorLog = slog.NewLogLogger(&SparseLog{Handler: o.Log.Handler()}, slog.LevelInfo)
		if !o.Plain {
			w.Server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}}
		}
	}
	return nil
}

// withFaults lets clients order faults, if the user has allowed that.
func (o *Options) withFaults(handler http.Handler) http.Handler {
	if !o.Faults {
		return handler
	}
	return faulty.New(handler).Control(o.clientKey())
}

// setRetention sets the retention of a store, unless the store keeps its present retention: a restart without the flag
// must not delete versions.
func (o *Options) setRetention(ctx context.Context, db *docstore.DB) error {
	if _, set := db.Retention(); set && o.Kept {
		return nil
	}
	return db.SetRetention(ctx, o.Retention)
}

// certificateFolder is the folder in which the certificate of a store is kept.
const certificateFolder = "tls"

// loadCertificate returns the server's certificate. If the certificate was created here, path is the file that clients
// must trust. The certificate of a store in memory is removed at the end.
func (o *Options) loadCertificate() (cert tls.Certificate, path string, drop func(), err error) {
	drop = func() {}
	switch {
	case o.Plain:
		return cert, "", drop, nil
	case o.Cert != "":
		cert, err = o.readCertificate()
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

// readCertificate reads the certificate of the user.
func (o *Options) readCertificate() (tls.Certificate, error) {
	cert, err := tls.LoadX509KeyPair(o.Cert, o.KeyFile)
	if err != nil {
		if text, ok := strings.CutPrefix(err.Error(), "tls: "); ok {
			err = usage.Error{Err: errors.New(text)}
		}
		return cert, fmt.Errorf("read --cert %s and --cert-key %s: %w", o.Cert, o.KeyFile, err)
	}
	return cert, nil
}

// listenAll listens on the addresses. All share one guard, since they share the process's
// descriptors.
func (o *Options) listenAll(ctx context.Context) (all Sites, err error) {
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
			return nil, fmt.Errorf("--%s is %s: %w: want a free address of this machine, such as 127.0.0.1:0", at.flag,
				at.address, cmp.Or(errors.Unwrap(err), err))
		}
	}
	return all, nil
}
