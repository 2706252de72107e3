package clients

import (
	"net/http"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/harness/soak"
)

// TestGoawayChance: clients that are all at one replica, since it was ready first, spread over two with
// --goaway-chance, and stay without. None of their requests fails.
func TestGoawayChance(t *testing.T) {
	harness.Long(t)
	for name, test := range map[string]struct {
		args    []string
		spreads bool
	}{
		"without": {},
		"with":    {[]string{"--goaway-chance=0.02"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			replicas := harness.NewReplicas(t)
			t.Cleanup(func() { replicas.Stop(t) })
			options := harness.ProxyOptions{Upstream: plane.RESTConfig(controlplane.Feed), Args: test.args}
			user := plane.RESTConfig(controlplane.Admin)
			var clients []*http.Client
			round := func() {
				t.Helper()
				for _, c := range clients {
					resp, err := c.Get("https://" + replicas.Balancer.Address() + "/version")
					expect.NoError(t, err)
					_ = resp.Body.Close()
					if resp.ProtoMajor != 2 || resp.StatusCode != http.StatusOK {
						t.Fatalf("%s %s", resp.Proto, resp.Status)
					}
				}
			}
			first, err := replicas.Start(t.Context(), options, user)
			expect.NoError(t, err)
			for range 10 {
				clients = append(clients, ownConnection(t, replicas.Through(user)))
			}
			round()
			second, err := replicas.Start(t.Context(), options, user)
			expect.NoError(t, err)
			// share is how many of a round's requests each replica gets.
			share := func() [2]float64 {
				t.Helper()
				before := [2]float64{answered(t, first), answered(t, second)}
				round()
				return [2]float64{answered(t, first) - before[0], answered(t, second) - before[1]}
			}
			if !test.spreads {
				for range 100 {
					round()
				}
				if got := share(); got[1] != 0 {
					t.Errorf("clients moved: %v", got)
				}
				return
			}
			poll.Until(t, patience, "each replica has some of the clients", func() bool {
				got := share()
				return got[0] >= 3 && got[1] >= 3
			})
		})
	}
}

// ownConnection is a client that shares its connection with no other.
func ownConnection(t *testing.T, cfg *rest.Config) *http.Client {
	t.Helper()
	cfg.Proxy = http.ProxyFromEnvironment // such transports are not shared
	c, err := rest.HTTPClientFor(cfg)
	expect.NoError(t, err)
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// answered is how many requests a replica has answered so far.
func answered(t *testing.T, p *harness.Proxy) float64 {
	t.Helper()
	sum, _, err := soak.Sum(t.Context(), http.DefaultClient, p.AdminURL()+"/metrics", "listproxy_requests_total", nil)
	expect.NoError(t, err)
	return sum
}
