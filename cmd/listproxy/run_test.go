package main

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/expect"
)

// TestPartFails: if a part fails, the process drains without --shutdown-delay-duration, stops all parts, and ends with the
// error of that part.
func TestPartFails(t *testing.T) {
	o, err := parse("--bind-address", "127.0.0.1", "--secure-port", "0", "--admin-bind-address", "127.0.0.1:0",
		"--cert-dir", t.TempDir())
	expect.NoError(t, err)
	var text strings.Builder
	log := slog.New(slog.NewTextHandler(&text, nil))
	api, err := o.newAPIServer(&rest.Config{Host: "https://127.0.0.1:1"}, slog.New(slog.DiscardHandler)) // nobody answers
	expect.NoError(t, err)
	ins, err := newInstruments(t.Context(), log)
	expect.NoError(t, err)
	p, err := o.openPorts(api.transports.URL(), ins.observer, log)
	expect.NoError(t, err)
	a, err := o.assemble(api, p, ins, log)
	expect.NoError(t, err)
	defer a.close()
	// The admin port, which serves health checks, cannot be served: its listener is closed.
	expect.NoError(t, p.admin.Close())

	const shutdownDelay = time.Hour // longer than a test may last
	const drainTimeout = time.Minute
	err = a.serve(t.Context(), shutdownDelay, drainTimeout)
	if err == nil {
		t.Fatal("serve returned no error")
	}
	expect.Says(t, err.Error(), "serving health checks")
	expect.Says(t, text.String(), "drained")
}
