package upstreams

import (
	"net"
	"testing"

	"github.com/listproxy/listproxy/test/controlplane"
)

// upstreamArgs give listproxy the API servers that a test breaks.
func upstreamArgs(servers ...*controlplane.APIServer) (args []string) {
	for _, s := range servers {
		args = append(args, "--upstream", s.URL())
	}
	return args
}

// unheard is an API server's URL at which nobody listens.
func unheard(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return "https://" + l.Addr().String()
}

// TestOneOfTwoFails: one API server after the other is killed, stands still, and is started anew.
func TestOneOfTwoFails(t *testing.T) {
	r := newRig(t, plane, plane.RESTConfig(controlplane.Admin))
	defer r.proxies.Stop(r)
	// The name is one that nobody listens on: only --upstream is connected to.
	r.start(unheard(t), upstreamArgs(one, two)...)
	quiet := r.load()
	defer quiet()

	r.part("nothing", noticedAtOnce, func() {})
	for _, s := range []*controlplane.APIServer{one, two} {
		r.part("killed", noticedAtOnce, func() { r.must(s.Kill()) })
		r.part("started again", noticedAtOnce, func() { r.must(s.Start(t.Context())) })
	}
	paused := []*controlplane.APIServer{one, two}
	if !*all {
		paused = paused[:1]
	}
	for _, s := range paused {
		r.part("paused", noticedLate, func() { r.must(s.Pause()) })
		r.part("resumed", noticedLate, func() { r.must(s.Resume()) })
	}
	r.part("restarted in order, one after the other", noticedAtOnce, func() {
		for _, s := range []*controlplane.APIServer{one, two} {
			r.must(s.Stop())
			r.must(s.Start(t.Context()))
		}
	})
}
