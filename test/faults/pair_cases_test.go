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
	// resetInterval is the mean time between two resets of a connection through the apiBalancer.
	resetInterval = 300 * time.Millisecond
	// upgradeResetInterval is the same while API servers are upgraded: short enough that watches come to the other server,
	// and long enough that they live until listproxy trusts them.
	upgradeResetInterval = time.Second
	// oldVersion of kube-apiserver is upgraded to that of test/controlplane/tools.
	oldVersion = "1.35.4"
	// joinDelay is the time for which an upgraded API server is ready without connections. By then listproxy has compared
	// what it loaded with the other server, and learns of the new version from /version alone.
	joinDelay = 20 * time.Second
	// mixedVersionsTime is for how long both versions answer behind one address.
	mixedVersionsTime = 75 * time.Second
)

// newVersionArgs enable a field of pods that the old version does not know, spec.schedulingGroup. Without them the new
// version drops the field.
func newVersionArgs() []string {
	return []string{"--feature-gates=GenericWorkload=true", "--runtime-config=scheduling.k8s.io/v1alpha2=true"}
}

// pairCases have two API servers behind one address. The balancer there spreads connections, and resets them now and then.
// Like a balancer that reads /readyz, it sends nobody to an API server that is not ready. Writers and the verifier use a
// third API server, to which nothing happens.
func pairCases() []faultCase {
	restart := func(s *scene, server *controlplane.APIServer, end func() error, meanwhile func()) {
		s.apiBalancer.Remove(address(server))
		s.must(end())
		meanwhile()
		s.must(server.Start(s.Context()))
		s.apiBalancer.Add(address(server))
	}
	cases := []faultCase{
		// The other server has everything that is new. With the usual --review-ttl reviews would wait for the paused
		// server, and there would be no hit that could be too old.
		{name: "one_of_two_paused", suite: makeTestAll, args: []string{"--review-ttl", "1h"}, fault: func(s *scene) time.Time {
			s.must(s.servers[0].Pause())
			s.apiBalancer.Remove(address(s.servers[0]))
			clock.Sleep(s.Context(), max(minPause, *duration))
			s.awaitRecovery()
			s.must(s.servers[0].Resume())
			s.apiBalancer.Add(address(s.servers[0]))
			return time.Now()
		}},
		{name: "both_of_two_restarted", suite: makeTestAll, breaksOften: true, fault: func(s *scene) time.Time {
			restart(s, s.servers[0], s.servers[0].Kill, s.awaitRecovery)
			restart(s, s.servers[1], s.servers[1].Stop, s.awaitRecovery)
			s.waitDuringFault()
			return time.Now()
		}},
	}
	for i, c := range cases {
		cases[i].prepare = func(s *scene) { s.startAPIBalancer(address(s.servers[0]), address(s.servers[1])) }
		cases[i].fault = func(s *scene) time.Time {
			defer s.resetConnections(resetInterval)()
			return c.fault(s)
		}
	}
	cases = append(cases, faultCase{
		// Answers and events of one server come up to a second late. So listproxy may get a revision from one server while
		// its watch is at the other. No consistent list may lack a write that was acknowledged before.
		name: "one_of_two_slow", suite: makeTestAll, prepare: func(s *scene) {
			s.startAPIBalancer(address(s.servers[0]))
			slow := hop.Run(s, s.servers[1].URL(), s.plane.CA(), hop.Odd{})
			anyDelay := func() time.Duration { return 100*time.Millisecond + rand.N(900*time.Millisecond) }
			slow.OnDelay(func(*http.Request) time.Duration { return anyDelay() })
			slow.OnAnswer(func(resp *http.Response) { clock.Sleep(resp.Request.Context(), anyDelay()) })
			s.upstream.CAData = slices.Concat(s.upstream.CAData, slow.CA())
			s.apiBalancer.Add(address(slow))
		},
		fault: func(s *scene) time.Time {
			s.awaitCompared("while one server is slow")
			restart(s, s.servers[0], s.servers[0].Kill, func() { s.awaitCompared("while the slow server is alone") })
			return time.Now()
		},
	})
	for i := range cases {
		cases[i].stage, cases[i].wantNobodyRejected = pairStage, true
	}
	return append(cases, faultCase{
		// Both servers are upgraded, one by one. Each answer must be, as a whole, what one of the versions says. In the end
		// lists have the field of the new version, though no event brought it. Self-checks are off: they may compare a
		// state of one version with a list of the other.
		name: "both_of_two_upgraded", stage: upgradedStage, wantNobodyRejected: true, breaksOften: true,
		noSelfChecks: true,
		prepare: func(s *scene) {
			s.startAPIBalancer(address(s.servers[1]), address(s.servers[2]))
			cfg := s.plane.RESTConfig(controlplane.Admin)
			cfg.Host = s.servers[0].URL()
			oldServer := ask.MustNew(s, cfg, requestTimeout)
			s.Verifier.SetReferences(s.direct, oldServer)
			if s.requireNewField(oldServer) == nil || s.requireNewField(s.direct) != nil {
				s.Fatal("both versions write pods alike: this test would not see a mixed answer")
			}
		},
		fault: func(s *scene) time.Time {
			defer s.resetConnections(upgradeResetInterval)()
			upgrade := func(server *controlplane.APIServer) {
				restart(s, server, server.Stop, func() {
					s.must(server.Use(s.Context(), "", newVersionArgs()...))
					s.must(server.Start(s.Context()))
					clock.Sleep(s.Context(), joinDelay)
				})
			}
			upgrade(s.servers[1])
			clock.Sleep(s.Context(), mixedVersionsTime)
			upgrade(s.servers[2])
			s.must(s.Verifier.Drain(s.Context(), patience))
			s.Verifier.SetReferences(s.direct)
			s.must(poll.Try(s.Context(), 2*patience, pollEvery, "lists from memory with the field of the new version", func() error {
				return s.requireNewField(s.via)
			}))
			return time.Now()
		},
	})
}

// requireNewField returns an error if a list of pods lacks the field of the new version, or is listproxy's and not from
// memory.
func (s *scene) requireNewField(client *ask.Client) error {
	a, err := client.Get(s.Context(), pods.Path("")+"?"+ask.AnyVersion)
	if err != nil {
		return err
	}
	// With the brace: metadata.managedFields of the old version has the bare name.
	hasField := strings.Contains(string(a.Body), `"schedulingGroup":{`)
	if !hasField || client == s.via && !a.FromMemory() {
		return errors.New(a.String())
	}
	return nil
}

// startAPIBalancer starts a balancer before API servers, and makes it listproxy's upstream.
func (s *scene) startAPIBalancer(addresses ...string) {
	s.Helper()
	var err error
	s.apiBalancer, err = hop.StartBalancer()
	s.must(err)
	s.Cleanup(s.apiBalancer.Close)
	for _, address := range addresses {
		s.apiBalancer.Add(address)
	}
	s.upstream = s.plane.RESTConfig(controlplane.Feed)
	s.upstream.Host = "https://" + s.apiBalancer.Address()
}

// address returns the host and port of a server.
func address(server interface{ URL() string }) string {
	return strings.TrimPrefix(server.URL(), "https://")
}

// resetConnections resets a connection through the apiBalancer now and then, until stop is called.
func (s *scene) resetConnections(interval time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(s.Context())
	var running sync.WaitGroup
	resets := 0
	running.Go(func() {
		for clock.Sleep(ctx, rand.N(2*interval)) {
			if s.apiBalancer.Reset() {
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
