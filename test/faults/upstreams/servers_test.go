package upstreams

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/poll"
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
	expect.NoError(t, err)
	defer func() { _ = l.Close() }()
	return "https://" + l.Addr().String()
}

// TestOneOfTwoFails: one API server after the other is killed, stands still, and is started anew.
func TestOneOfTwoFails(t *testing.T) {
	r := takeRig(t)
	// The name is one that nobody listens on: only --upstream is connected to.
	r.start(unheard(t), upstreamArgs(one, two)...)
	quiet := r.load()
	defer quiet()

	r.part("nothing", noticedAtOnce, func() {})
	for _, s := range []*controlplane.APIServer{one, two} {
		r.part("killed", noticedAtOnce, func() { r.must(s.Kill()) })
		r.part("started again", noticedAtOnce, func() { r.startAPIServer(s) })
	}
	if testing.Short() { // make test-all goes on
		return
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
			r.startAPIServer(s)
		}
	})
}

// TestOldStateOfOneOfTwo: one API server after the other stands still, so that the feeds are at one
// of them, and go on hearing nothing. What they have is not given as the newest state for longer
// than the bound. Callers' rights are not asked for again meanwhile, which would wait there as
// well: then nobody would be given anything.
func TestOldStateOfOneOfTwo(t *testing.T) {
	harness.Long(t)
	r := takeRig(t)
	p := r.start(unheard(t), append(upstreamArgs(one, two), "--review-ttl", "1h")...)
	quiet := r.load()
	defer quiet()

	r.part("rights are known", noticedAtOnce, func() {})
	oldest := time.Duration(0)
	for _, s := range []*controlplane.APIServer{one, two} {
		c := r.part("paused until it is given up", noticedLate, func() {
			r.must(s.Pause())
			r.must(poll.Retry(t.Context(), "it to be given up", func() error { // so that the feeds are at the other one
				metrics, err := ask.At(p.AdminURL()).Get(t.Context(), "/metrics")
				if down := fmt.Sprintf("listproxy_upstream_endpoint_up{endpoint=%q} 0\n", strings.TrimPrefix(s.URL(), "https://")); err == nil &&
					!strings.Contains(string(metrics.Body), down) {
					err = errors.New("it is up")
				}
				return err
			}))
		})
		oldest = max(oldest, c.Behind)
		r.part("resumed", noticedLate, func() { r.must(s.Resume()) })
	}
	t.Logf("the oldest state that was given as the newest had been left for %v", oldest)
}
