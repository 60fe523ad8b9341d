package natspub

import (
	"testing"
	"time"
)

// TestAnEmbeddedServerSyncsEachMessage unless it is told otherwise: what is acknowledged is published, and nobody would
// publish it again.
func TestAnEmbeddedServerSyncsEachMessage(t *testing.T) {
	t.Parallel()
	opts, err := Options{}.serverOptions("dir")
	if err != nil || !opts.SyncAlways || !opts.DontListen {
		t.Errorf("by default the server is run with %+v, %v", opts, err)
	}
	opts, err = Options{SyncEvery: time.Minute, Listen: "localhost:4222"}.serverOptions("dir")
	if err != nil || opts.SyncAlways || opts.SyncInterval != time.Minute || opts.DontListen ||
		opts.Host != "localhost" || opts.Port != 4222 {
		t.Errorf("synced every minute and listening, it is run with %+v, %v", opts, err)
	}
}
