package servicebuspub_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/millrace/changefeed/outbox/servicebuspub"
	"github.com/millrace/changefeed/outbox/servicebuspub/internal/peer"
)

// listen serves a broker on a port, as Microsoft's emulator does, and returns the connection string.
func listen(t *testing.T, broker *peer.Broker) (connection string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- broker.Serve(listener) }()
	t.Cleanup(func() {
		_ = listener.Close()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return fmt.Sprintf("Endpoint=sb://%s;SharedAccessKeyName=relay;SharedAccessKey=c2VjcmV0;UseDevelopmentEmulator=true", listener.Addr())
}

// As behind a gateway with a certificate of its own.
func TestAServiceIsReachedByTLSAtAnEndpointOfItsOwn(t *testing.T) {
	gateway := httptest.NewTLSServer(nil) // for its certificate
	defer gateway.Close()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: gateway.TLS.Certificates})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		// a client that has gone does not hear the farewell of TLS
		_ = (&peer.Broker{RequiresSession: true}).Serve(listener)
	}()
	defer func() { listener.Close(); <-served }()
	roots := x509.NewCertPool()
	roots.AddCert(gateway.Certificate())
	o := settings(pages{"/contacts": queue(true, true)})
	o.Client.CustomEndpoint, o.Client.TLSConfig = listener.Addr().String(), &tls.Config{RootCAs: roots}
	p, err := servicebuspub.OpenConnectionString(t.Context(), connection, entity, o)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := p.Publish(t.Context(), events("Oslo", 1, 3)); n != 3 || err != nil {
		t.Errorf("%d are published, %v", n, err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// An emulator has no settings that could be read, and no TLS.
func TestAnEmulatorIsTakenWithAWarning(t *testing.T) {
	broker := &peer.Broker{RequiresSession: true}
	connection := listen(t, broker)
	var warned []error
	p, err := servicebuspub.OpenConnectionString(t.Context(), connection, entity,
		servicebuspub.Options{Warn: func(err error) { warned = append(warned, err) }})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := p.Publish(t.Context(), events("Oslo", 1, 3)); n != 3 || err != nil || len(warned) != 1 {
		t.Errorf("%d are published, %v; warned %v", n, err, warned)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	client, err := azservicebus.NewClientFromConnectionString(connection, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	all := &consumed{got: map[string][]string{}, left: 3, stop: stop}
	if err := (servicebuspub.Consumer{Client: client, Entity: entity}).Run(ctx, all.handle); err != nil ||
		len(all.got["Oslo"]) != 3 {
		t.Errorf("consumed %v, %v", all.got, err)
	}
	if err := client.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
