package upstreams

import (
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/hop"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// TestOneOfTwoIsSlow: what one of two API servers answers and tells comes up to a second late, so
// that a question may be answered by one and the stream be that of the other. No list of the newest
// state lacks what was acknowledged before ([rig.askRecent]).
func TestOneOfTwoIsSlow(t *testing.T) {
	harness.Long(t)
	r := takeRig(t)
	before, err := hop.Start(two.URL(), plane.CA())
	r.must(err)
	defer before.Close()
	late := func() time.Duration { return 100*time.Millisecond + rand.N(900*time.Millisecond) }
	before.OnDelay(func(*http.Request) time.Duration { return late() })
	before.OnBody(func(r *http.Request, body []byte) []byte {
		poll.Pause(r.Context(), late())
		return body
	})
	r.cas = before.CA()
	both, url := r.behind(one)
	both.Add(strings.TrimPrefix(before.URL(), "https://"))
	r.start(url)
	quiet := r.load()
	defer quiet()

	recent := 0
	for _, part := range []struct {
		name string
		do   func()
	}{
		{"one is slow", func() {}},
		{"the other is killed, so that all is at the slow one", func() {
			both.Remove(address(one))
			r.must(one.Kill())
		}},
		{"and started again", func() {
			r.startAPIServer(one)
			both.Add(address(one))
		}},
	} {
		c := r.part(part.name, noticedLate, part.do)
		t.Logf("    %d lists of the newest state came from memory", c.Recent)
		recent += c.Recent
	}
	if recent == 0 {
		t.Error("none of the newest state came from memory")
	}
}
