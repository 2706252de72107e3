package faults

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/hop"
	"github.com/listproxy/listproxy/test/harness/poll"
)

const (
	// resetEvery is how often a connection through the door is reset, on average.
	resetEvery = 300 * time.Millisecond
	// older is the version of kube-apiserver that is upgraded to the one of test/controlplane/tools.
	older = "1.35.4"
	// seldom is how often a connection is reset while API servers are upgraded: watches come to the
	// other one then, and live for long enough to be believed.
	seldom = time.Second
	// joinsLate is how long after it is ready an upgraded API server gets connections: so that what was
	// loaded was compared with the others by then, and only /version tells.
	joinsLate = 20 * time.Second
	// inTurn is for how long both versions answer behind one address.
	inTurn = 75 * time.Second
)

// newerArgs turn on what only the newer version has: pods have a field, spec.schedulingGroup, that
// older API servers do not know, and others drop.
func newerArgs() []string {
	return []string{"--feature-gates=GenericWorkload=true", "--runtime-config=scheduling.k8s.io/v1alpha2=true"}
}

// pairCases are of two API servers behind one address. The balancer there spreads connections, and
// resets them now and then; as balancers do that look at /readyz, it sends nobody to an API server
// that is not ready. Writers and the oracle have another API server, to which nothing happens.
func pairCases() []faultCase {
	// restarts is one of them that ends and is started again.
	restarts := func(s *scene, one *controlplane.APIServer, end func() error, meanwhile func()) {
		s.door.Remove(address(one))
		s.must(end())
		meanwhile()
		s.must(one.Start(s.Context()))
		s.door.Add(address(one))
	}
	cases := []faultCase{
		// While one is away, or stands still, the other one has all that is new. Rights that were
		// reviewed again would have to wait where one stands still: then nobody would be given
		// anything, not even what is too old.
		{name: "one_of_two_paused", runs: inFull, args: []string{"--review-ttl", "1h"}, fault: func(s *scene) time.Time {
			s.must(s.servers[0].Pause())
			s.door.Remove(address(s.servers[0]))
			clock.Sleep(s.Context(), max(pausedFor, *duration))
			s.recover()
			s.must(s.servers[0].Resume())
			s.door.Add(address(s.servers[0]))
			return time.Now()
		}},
		{name: "both_of_two_restarted", runs: inFull, breaksOften: true, fault: func(s *scene) time.Time {
			restarts(s, s.servers[0], s.servers[0].Kill, s.recover)
			restarts(s, s.servers[1], s.servers[1].Stop, s.recover)
			s.hold()
			return time.Now()
		}},
	}
	for i, c := range cases {
		cases[i].before = func(s *scene) { s.openDoor(address(s.servers[0]), address(s.servers[1])) }
		cases[i].fault = func(s *scene) time.Time {
			defer s.resetting(resetEvery)()
			return c.fault(s)
		}
	}
	cases = append(cases, faultCase{
		// What one answers and tells comes up to a second late, so that a question may be answered by
		// one and the stream be that of the other. No list of the newest state may lack what was
		// acknowledged before.
		name: "one_of_two_slow", runs: inFull, before: func(s *scene) {
			s.openDoor(address(s.servers[0]))
			slow := hop.Run(s, s.servers[1].URL(), s.plane.CA(), hop.Odd{})
			late := func() time.Duration { return 100*time.Millisecond + rand.N(900*time.Millisecond) }
			slow.OnDelay(func(*http.Request) time.Duration { return late() })
			slow.OnAnswer(func(resp *http.Response) { clock.Sleep(resp.Request.Context(), late()) })
			s.own.CAData = slices.Concat(s.own.CAData, slow.CA())
			s.door.Add(address(slow))
		},
		fault: func(s *scene) time.Time {
			s.calm("while one is slow")
			restarts(s, s.servers[0], s.servers[0].Kill, func() { s.calm("while all is at the slow one") })
			return time.Now()
		},
	})
	for i := range cases {
		cases[i].stage, cases[i].refusesNobody = pair, true
	}
	return append(cases, faultCase{
		// Both are upgraded, one by one. An answer must be all of what one of the versions says. In
		// the end it is as the newer one writes it: the field that only that one knows is in lists,
		// without any event.
		// A self-check may be answered by one version, and what it checks be of the other.
		name: "both_of_two_upgraded", stage: upgraded, refusesNobody: true, breaksOften: true, args: []string{"--self-check-interval", "0"},
		before: func(s *scene) {
			s.openDoor(address(s.servers[1]), address(s.servers[2]))
			cfg := s.plane.RESTConfig(controlplane.Admin)
			cfg.Host = s.servers[0].URL()
			before := ask.MustNew(s, cfg, requestTimeout)
			s.Oracle.Only(s.direct, before)
			if hasGroup(s, before) == nil || hasGroup(s, s.direct) != nil {
				s.Fatal("both versions write pods alike: nothing could be mixed up")
			}
		},
		fault: func(s *scene) time.Time {
			defer s.resetting(seldom)()
			upgrades := func(one *controlplane.APIServer) {
				restarts(s, one, one.Stop, func() {
					s.must(one.Use(s.Context(), "", newerArgs()...))
					s.must(one.Start(s.Context()))
					clock.Sleep(s.Context(), joinsLate)
				})
			}
			upgrades(s.servers[1])
			clock.Sleep(s.Context(), inTurn)
			upgrades(s.servers[2])
			s.must(s.Oracle.Drain(s.Context(), patience))
			s.Oracle.Only(s.direct)
			s.must(poll.Try(s.Context(), 2*patience, pollEvery, "lists from memory with what only the newer version knows", func() error {
				return hasGroup(s, s.via)
			}))
			return time.Now()
		},
	})
}

// hasGroup is an error if a list of pods comes without what only the newer version knows (whose name is in
// metadata.managedFields of the others, too), or, from listproxy, not from memory.
func hasGroup(s *scene, from *ask.Client) error {
	a, err := from.Get(s.Context(), pods.Path("")+"?"+ask.AnyVersion)
	if err == nil && (from == s.via && !a.FromMemory() || !strings.Contains(string(a.Body), `"schedulingGroup":{`)) {
		err = errors.New(a.String())
	}
	return err
}

// openDoor starts a balancer before API servers, which is where listproxy goes.
func (s *scene) openDoor(to ...string) {
	s.Helper()
	var err error
	s.door, err = hop.StartBalancer()
	s.must(err)
	s.Cleanup(s.door.Close)
	for _, address := range to {
		s.door.Add(address)
	}
	s.own = s.plane.RESTConfig(controlplane.Feed)
	s.own.Host = "https://" + s.door.Address()
}

func address(of interface{ URL() string }) string { return strings.TrimPrefix(of.URL(), "https://") }

// resetting resets a connection through the door now and then, until the function that it returns
// is called.
func (s *scene) resetting(every time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(s.Context())
	var running sync.WaitGroup
	resets := 0
	running.Go(func() {
		for clock.Sleep(ctx, rand.N(2*every)) {
			if s.door.Reset() {
				resets++
			}
		}
	})
	return func() {
		cancel()
		running.Wait()
		if resets == 0 {
			s.Error("no connection was reset")
		}
	}
}
