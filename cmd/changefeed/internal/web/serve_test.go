package web

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/docstore"
)

func TestEndpointsAreForClients(t *testing.T) {
	for _, c := range []struct {
		ip    string
		plain bool
		want  string
	}{
		{"127.0.0.1", false, "https://127.0.0.1:8081/"},
		{"127.0.0.1", true, "http://127.0.0.1:8081/"},
		{"::1", false, "https://[::1]:8081/"},
		{"192.0.2.1", false, "https://192.0.2.1:8081/"},
		{"0.0.0.0", false, "https://localhost:8081/"},
		{"::", false, "https://localhost:8081/"},
	} {
		o := Options{Plain: c.plain}
		if got := o.clientURL(&net.TCPAddr{IP: net.ParseIP(c.ip), Port: 8081}); got != c.want {
			t.Errorf("%s: %s, want %s", c.ip, got, c.want)
		}
	}
}

func TestAStoreKeepsTheRetentionThatItWasServedWith(t *testing.T) {
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, start := range []struct {
		flag  time.Duration
		given bool
		want  time.Duration
	}{
		{cosmosrest.DefaultRetention, false, cosmosrest.DefaultRetention},
		{168 * time.Hour, true, 168 * time.Hour},
		{cosmosrest.DefaultRetention, false, 168 * time.Hour},
		{0, true, 0},
		{cosmosrest.DefaultRetention, false, 0},
	} {
		o := Options{Retention: start.flag, Kept: !start.given}
		if err := o.setRetention(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		if got, set := db.Retention(); got != start.want || !set {
			t.Errorf("retention is %v after a start with %v, given %v: want %v", got, start.flag, start.given,
				start.want)
		}
	}
}

// Anybody knows the emulator's key, and can make a token for --insecure-aad.
func TestWhatEverybodyCouldOpenIsServedToThisMachineOnly(t *testing.T) {
	const mine = "c2l4dGVlbiBieXRlcyBvZiBteSBvd24="
	for _, tt := range []struct {
		name string
		edit func(*Options)
		want string // empty for none
	}{
		{"the default", func(*Options) {}, ""},
		{"localhost", func(o *Options) { o.Listen = "localhost:0" }, ""},
		{"every interface", func(o *Options) {
			o.Listen = ":8081"
		}, "--listen is :8081: want a loopback address such as 127.0.0.1:8081, or an --account-key"},
		{"with a key", func(o *Options) { o.Listen, o.Keys = ":8081", []string{mine} }, ""},
		{"with the emulator's", func(o *Options) {
			o.Listen, o.Keys = ":8081", []string{mine, cosmosrest.EmulatorKey}
		}, "--listen is :8081"},
		{"with the emulator's for reading", func(o *Options) {
			o.Listen, o.Keys, o.ReadOnly = ":8081", []string{mine}, []string{cosmosrest.EmulatorKey}
		}, "--listen is :8081"},
		{"its gateway", func(o *Options) { o.Dedicated = "0.0.0.0:8082" }, "--dedicated-gateway is 0.0.0.0:8082"},
		{"its gateway with a key", func(o *Options) { o.Dedicated, o.Keys = "0.0.0.0:8082", []string{mine} }, ""},
		{"insecure tokens", func(o *Options) { o.Insecure = true }, ""},
		{"insecure tokens for all", func(o *Options) {
			o.Listen, o.Insecure, o.Keys = ":8081", true, []string{mine}
		}, "--listen is :8081: want a loopback address such as 127.0.0.1:8081 with --insecure-aad"},
		{"no port", func(o *Options) { o.Listen = "127.0.0.1" }, "--listen is 127.0.0.1: want host:port"},
		{"an empty key", func(o *Options) { o.Keys = []string{""} }, "--account-key is empty"},
		{"an empty key for reading", func(o *Options) { o.ReadOnly = []string{""} }, "--read-only-key is empty"},
		{"three keys", func(o *Options) { o.Keys = []string{"a", "b", "c"} }, "--account-key is given 3 times"},
		{"three keys for reading", func(o *Options) {
			o.ReadOnly = []string{"a", "b", "c"}
		}, "--read-only-key is given 3 times"},
		{"less than unlimited", func(o *Options) { o.Throughput = -2 }, "--ru is -2"},
		{"a negative retention", func(o *Options) { o.Retention = -time.Second }, "--retention is -1s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := Options{Listen: DefaultListen}
			tt.edit(&o)
			err := o.Check()
			if tt.want == "" && err != nil || tt.want != "" && (!errors.As(err, new(usage.Error)) ||
				!strings.HasPrefix(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestTheStoreIsOpenedAsTheFlagsSay(t *testing.T) {
	for o, want := range map[*Options]docstore.Options{
		{}: {InMemory: true},
		{Dir: "data", Cache: 36 << 20, NoSync: true}: {CacheBytes: 36 << 20, NoSync: true},
	} {
		if got := o.storeOptions(); got != want {
			t.Errorf("%+v opens a store with %+v, want %+v", o, got, want)
		}
	}
}

func TestAllowedHostsReachTheServer(t *testing.T) {
	o := Options{Hosts: []string{"cosmos", "cosmos.internal"}}
	s, err := o.serverOptions(t.Context())
	if err != nil || !slices.Equal(s.Hosts, o.Hosts) {
		t.Errorf("hosts %q, %v: want %q", s.Hosts, err, o.Hosts)
	}
}

func TestAKeyOfTheEnvironmentStandsInForAFlag(t *testing.T) {
	t.Setenv(KeyVariable, "ZW52")
	t.Setenv(ReadOnlyVariable, "cmVhZA==")
	o := Options{Listen: DefaultListen}
	if err := o.Check(); err != nil || strings.Join(append(o.Keys, o.ReadOnly...), " ") != "ZW52 cmVhZA==" {
		t.Errorf("got %q, %q, %v", o.Keys, o.ReadOnly, err)
	}
	o.Keys = []string{"ZmxhZw=="}
	if err := o.Check(); err != nil || o.Keys[0] != "ZmxhZw==" {
		t.Errorf("got %q, %v, want the key of the flag", o.Keys, err)
	}
}

// The certificate of a store is made once; that of a store in memory goes with it.
func TestACertificateStaysWithItsStore(t *testing.T) {
	kept := Options{Dir: t.TempDir()}
	_, path, drop, err := kept.loadCertificate()
	if err != nil || !strings.HasPrefix(path, filepath.Join(kept.Dir, "tls")) {
		t.Fatalf("made %s, %v", path, err)
	}
	first, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	drop()
	if _, path, _, err = kept.loadCertificate(); err != nil {
		t.Fatal(err)
	}
	if again, err := os.ReadFile(path); err != nil || !bytes.Equal(again, first) {
		t.Errorf("another certificate at the second start, %v", err)
	}
	var passing Options
	if _, path, drop, err = passing.loadCertificate(); err != nil {
		t.Fatal(err)
	}
	drop()
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left, %v", path, err)
	}
	if _, path, _, err = (&Options{Plain: true}).loadCertificate(); path != "" || err != nil {
		t.Errorf("without TLS: %s, %v", path, err)
	}
	if _, _, _, err = (&Options{Cert: "no.pem", KeyFile: "no.key"}).loadCertificate(); err == nil ||
		!strings.HasPrefix(err.Error(), "read --cert no.pem and --cert-key no.key") {
		t.Errorf("without files: %v", err)
	}
}

func TestASecretKeyIsNotShown(t *testing.T) {
	for key, want := range map[string]string{
		cosmosrest.EmulatorKey: cosmosrest.EmulatorKey,
		"c2VjcmV0":             "AccountKey=KEY;",
	} {
		var b strings.Builder
		if err := (Endpoints{Endpoint: "https://localhost:1/", Key: key, Certificate: "c.pem"}).Write(&b); err != nil {
			t.Fatal(err)
		}
		if got := b.String(); !strings.Contains(got, want) || strings.Contains(got, "c2VjcmV0") ||
			!strings.Contains(got, "SSL_CERT_FILE='c.pem'") || !strings.Contains(got, "in memory") {
			t.Errorf("got\n%s", got)
		}
	}
}

// serve serves with options until f returns.
func serve(t *testing.T, o Options, f func(Endpoints)) error {
	t.Helper()
	o.Listen, o.Plain, o.Log = "127.0.0.1:0", true, slog.New(slog.DiscardHandler)
	if err := o.Check(); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	return o.Serve(ctx, func(e Endpoints) error {
		defer end()
		f(e)
		return nil
	})
}

func TestAStoreIsServedUntilTheEnd(t *testing.T) {
	o := Options{Dir: filepath.Join(t.TempDir(), "data"), Dedicated: "127.0.0.1:0"}
	err := serve(t, o, func(e Endpoints) {
		if string(e.Store) != o.Dir || e.Key != cosmosrest.EmulatorKey ||
			e.Connection != cosmosrest.ConnectionString(e.Endpoint, e.Key) || string(e.Dedicated) == e.Endpoint {
			t.Errorf("got %+v", e)
		}
		for _, url := range []string{e.Endpoint, string(e.Dedicated)} {
			answer, err := http.Get(url)
			if err != nil {
				t.Error(err)
				continue
			}
			if answer.Body.Close(); answer.StatusCode != http.StatusUnauthorized {
				t.Errorf("%s: %s, want that a key is asked for", url, answer.Status)
			}
		}
		if err := serve(t, o, func(Endpoints) {}); !errors.Is(err, docstore.ErrInUse) ||
			!strings.Contains(err.Error(), "use its address") {
			t.Errorf("a second server: %v", err)
		}
		taken := Options{Dedicated: strings.TrimSuffix(strings.TrimPrefix(e.Endpoint, "http://"), "/")}
		if err := serve(t, taken, func(Endpoints) {}); err == nil ||
			!strings.HasPrefix(err.Error(), "--dedicated-gateway is "+taken.Dedicated) {
			t.Errorf("an address that is taken: %v", err)
		}
	})
	if err != nil {
		t.Error(err)
	}
	db, err := docstore.Open(o.Dir, docstore.Options{}) // it was closed
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

// Who corrects the address that is taken can serve the same store at the other one at once.
func TestAStartThatFailsLeavesNothingOpen(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	o := Options{
		Dir: filepath.Join(t.TempDir(), "data"), Listen: free.Addr().String(), Dedicated: taken.Addr().String(),
		Plain: true, Log: slog.New(slog.DiscardHandler),
	}
	err = o.Serve(t.Context(), func(Endpoints) error { return nil })
	if err == nil || !strings.HasPrefix(err.Error(), "--dedicated-gateway is ") {
		t.Fatalf("served at an address that is taken: %v", err)
	}
	if _, err := os.Stat(o.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("there is a store: %v", err)
	}
	made, err := docstore.Open(o.Dir, docstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := made.Close(); err != nil {
		t.Fatal(err)
	}
	err = o.Serve(t.Context(), func(Endpoints) error { return nil })
	if err == nil || !strings.HasPrefix(err.Error(), "--dedicated-gateway is ") {
		t.Fatalf("served at an address that is taken: %v", err)
	}
	db, err := docstore.Open(o.Dir, docstore.Options{MustExist: true})
	if err != nil {
		t.Fatalf("the store: %v", err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	again, err := net.Listen("tcp", o.Listen)
	if err != nil {
		t.Fatalf("the first address: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

// Who starts a server of a new store at an address that is taken, or with a certificate that cannot be read, has no
// store.
func TestAStartThatFailsLeavesNoStore(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for says, o := range map[string]Options{
		"--listen is ":            {Listen: taken.Addr().String(), Plain: true},
		"--dedicated-gateway is ": {Listen: "127.0.0.1:0", Dedicated: taken.Addr().String(), Plain: true},
		"read --cert none.pem ":   {Listen: "127.0.0.1:0", Cert: "none.pem", KeyFile: "none.pem"},
	} {
		o.Dir, o.Log = filepath.Join(t.TempDir(), "data"), slog.New(slog.DiscardHandler)
		err := o.Serve(t.Context(), func(Endpoints) error { t.Error("served"); return nil })
		if err == nil || !strings.HasPrefix(err.Error(), says) {
			t.Errorf("got %v, want %q", err, says)
		}
		if _, err := os.Stat(o.Dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: there is a store: %v", says, err)
		}
	}
}

// Without a store to keep it with, a certificate and its private key are gone with the server.
func TestTheCertificateOfAStoreInMemoryIsRemoved(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	t.Setenv("TMP", dir) // on Windows
	o := Options{Listen: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler)}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	err := o.Serve(ctx, func(e Endpoints) error {
		defer end()
		file := string(e.Certificate)
		if _, err := os.Stat(file); err != nil || filepath.Dir(filepath.Dir(file)) != dir {
			t.Errorf("the certificate is %s, %v, want a file below %s", e.Certificate, err, dir)
		}
		return nil
	})
	if left, failed := os.ReadDir(dir); err != nil || failed != nil || len(left) > 0 {
		t.Errorf("left are %v, %v, after %v", left, failed, err)
	}
}

func TestWrongOptionsLeaveNoStore(t *testing.T) {
	for _, o := range []Options{{Keys: []string{"short"}}, {Roles: "none.json"}, {Roles: "none.json", Insecure: true}} {
		o.Dir = filepath.Join(t.TempDir(), "data")
		err := serve(t, o, func(Endpoints) { t.Error("served") })
		// A file that does not exist has an exit code of its own.
		if isMissing := o.Roles != ""; errors.Is(err, os.ErrNotExist) != isMissing ||
			errors.As(err, new(usage.Error)) == isMissing {
			t.Errorf("got %v", err)
		}
		if _, err := os.Stat(o.Dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("there is a store: %v", err)
		}
	}
}
