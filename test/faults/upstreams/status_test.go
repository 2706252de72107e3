package upstreams

import (
	"fmt"
	"testing"

	"github.com/listproxy/listproxy/test/harness/poll"
)

// TestStatusShowsServers: the status has what listproxy knows of each --upstream.
func TestStatusShowsServers(t *testing.T) {
	r := takeRig(t)
	p := r.start(unheard(t), upstreamArgs(one, two)...)

	// want waits until the first is in a state, and the second up.
	want := func(state string) {
		t.Helper()
		r.must(poll.Retry(t.Context(), "the first server is "+state, func() error {
			status, err := p.Status(t.Context())
			if err != nil {
				return err
			}
			endpoints := status.Endpoints
			if len(endpoints) != 2 || endpoints[0].State != state || endpoints[1].State != "up" {
				return fmt.Errorf("the status has %+v", endpoints)
			}
			connections := int64(0)
			for _, e := range endpoints {
				connections += e.Connections
				isUp := e.State == "up"
				if isUp != (e.Version != "") || isUp != (e.Error == "") || e.Meaning == "" || e.Seconds < 0 {
					return fmt.Errorf("of one server the status has %+v", e)
				}
			}
			if connections == 0 || state == "unreachable" && endpoints[0].Connections != 0 {
				return fmt.Errorf("connections are not where they should be: %+v", endpoints)
			}
			return nil
		}))
	}
	want("up")
	r.must(one.Pause())
	defer func() { r.must(one.Resume()) }()
	want("unreachable")
	r.must(one.Resume())
	want("up")
}
