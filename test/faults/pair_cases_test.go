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
	// upgradeResetInterval is the mean time between two resets while API servers are upgraded. It is short enough that watches
	// move to the other server, and long enough that listproxy trusts a watch before it is reset.
	upgradeResetInterval = time.Second
	// oldVersion of kube-apiserver is upgraded to that of test/controlplane/tools.
	oldVersion = "1.35.4"
	// joinDelay is the time for which an upgraded API server is ready, but gets no connections. Its new Lease makes listproxy
	// compare what it keeps with lists, once. After joinDelay this is over. So when the server gets connections, listproxy can
	// learn only from /version that a new version answers.
	joinDelay = 20 * time.Second
	// mixedVersionsTime is the time for which both versions answer behind one address.
	mixedVersionsTime = 75 * time.Second
)

// newVersionArgs enable a field of pods that the old version does not know, spec.schedulingGroup. Without them the new
// version drops the field.
func newVersionArgs() []string {
	return []string{"--feature-gates=GenericWorkload=true", "--runtime-config=scheduling.k8s.io/v1alpha2=true"}
}

// pairCases have two API servers behind one address, that of the apiBalancer. It spreads connections over them, and resets one
// now and then. Like a balancer that reads /readyz, it sends nobody to an API server that is not ready. Writers and the
// verifier use a third API server, to which nothing happens.
func pairCases() []faultCase {
	cases := []faultCase{
		{
			// With a short --review-ttl, reviews would wait for the paused server, and nothing would be answered from memory.
			name: "one_of_two_paused", suite: makeTestAll, stage: pairStage, args: []string{"--review-ttl", "1h"},
			prepare: (*scene).balancePair, fault: whileResetting(resetInterval, (*scene).pauseOne),
		},
		{
			name: "both_of_two_restarted", suite: makeTestAll, stage: pairStage, breaksOften: true,
			prepare: (*scene).balancePair, fault: whileResetting(resetInterval, (*scene).restartBoth),
		},
		{
			// The outage after the kill may be so short that no answer mentions it.
			name: "one_of_two_slow", suite: makeTestAll, stage: pairStage, breaksOften: true,
			prepare: (*scene).balanceWithSlowOne, fault: (*scene).restartFastOne,
		},
		{
			// Self-checks are off: they may compare a state of one version with a list of the other.
			name: "both_of_two_upgraded", stage: upgradedStage, breaksOften: true, noSelfChecks: true,
			prepare: (*scene).balanceOldPair, fault: whileResetting(upgradeResetInterval, (*scene).upgradeBoth),
		},
	}
	for i := range cases {
		cases[i].wantNobodyRejected = true
	}
	return cases
}

// balancePair starts the apiBalancer before two API servers. listproxy's upstream is the apiBalancer.
func (s *scene) balancePair() { s.startAPIBalancer(address(s.servers[0]), address(s.servers[1])) }

// pauseOne pauses one of two API servers, and later resumes it. Meanwhile the other one has all new writes.
func (s *scene) pauseOne() time.Time {
	paused := s.servers[0]
	s.must(paused.Pause())
	s.apiBalancer.Remove(address(paused))
	clock.Sleep(s.Context(), max(minPause, *duration))
	s.awaitRecovery()
	s.must(paused.Resume())
	s.apiBalancer.Add(address(paused))
	return time.Now()
}

// restartBoth restarts two API servers, one after the other.
func (s *scene) restartBoth() time.Time {
	s.restartServer(s.servers[0], s.servers[0].Kill, s.awaitRecovery)
	s.restartServer(s.servers[1], s.servers[1].Stop, s.awaitRecovery)
	s.waitDuringFault()
	return time.Now()
}

// restartServer ends an API server behind the apiBalancer, calls meanwhile, and starts the server again.
func (s *scene) restartServer(server *controlplane.APIServer, end func() error, meanwhile func()) {
	s.apiBalancer.Remove(address(server))
	s.must(end())
	meanwhile()
	s.must(server.Start(s.Context()))
	s.apiBalancer.Add(address(server))
}

// balanceWithSlowOne is balancePair, but answers and events of the second server come up to a second late. So listproxy may
// learn the newest revision from the fast server while its watch is at the slow one. Even so, no consistent list may lack a
// write that was confirmed before.
func (s *scene) balanceWithSlowOne() {
	slow := hop.Run(s, s.servers[1].URL(), s.plane.CA(), hop.Odd{})
	anyDelay := func() time.Duration { return 100*time.Millisecond + rand.N(900*time.Millisecond) }
	slow.OnDelay(func(*http.Request) time.Duration { return anyDelay() })
	slow.OnAnswer(func(resp *http.Response) { clock.Sleep(resp.Request.Context(), anyDelay()) })
	s.startAPIBalancer(address(s.servers[0]), address(slow))
	s.upstream.CAData = slices.Concat(s.upstream.CAData, slow.CA())
}

// restartFastOne restarts the server that is not slow.
func (s *scene) restartFastOne() time.Time {
	s.awaitCompared("while one server is slow")
	s.restartServer(s.servers[0], s.servers[0].Kill, func() { s.awaitCompared("while the slow server is alone") })
	return time.Now()
}

// balanceOldPair starts the apiBalancer before two API servers of the old version, servers[1] and servers[2], which are
// upgraded later. A third one of the old version, servers[0], stays as it is: the verifier compares answers with it and with
// the plane's first API server, which has the new version. Each object of an answer must have the bytes that one of the two
// sends.
func (s *scene) balanceOldPair() {
	s.startAPIBalancer(address(s.servers[1]), address(s.servers[2]))
	cfg := s.plane.RESTConfig(controlplane.Admin)
	cfg.Host = s.servers[0].URL()
	oldServer := ask.MustNew(s, cfg, requestTimeout)
	s.Verifier.SetReferences(s.direct, oldServer)
	oldHasField := s.requireNewField(oldServer) == nil
	newHasField := s.requireNewField(s.direct) == nil
	if oldHasField || !newHasField {
		s.Fatal("both versions write pods alike: this test would not see which version wrote an object")
	}
}

// upgradeBoth upgrades the two API servers, one by one. In the end lists from memory must have the field of the new version,
// though no watch sent an event with it.
func (s *scene) upgradeBoth() time.Time {
	upgrade := func(server *controlplane.APIServer) {
		s.restartServer(server, server.Stop, func() {
			s.must(server.Use(s.Context(), "", newVersionArgs()...))
			s.must(server.Start(s.Context())) // still without connections
			clock.Sleep(s.Context(), joinDelay)
		})
	}
	upgrade(s.servers[1])
	clock.Sleep(s.Context(), mixedVersionsTime)
	upgrade(s.servers[2])
	s.must(s.Verifier.Drain(s.Context(), patience))
	s.Verifier.SetReferences(s.direct)
	s.must(poll.Try(s.Context(), 2*patience, pollEvery, "lists from memory with the field of the new version", func() error {
		return s.requireNewField(s.proxied)
	}))
	return time.Now()
}

// requireNewField returns an error if a list of pods lacks the field of the new version. If client asks listproxy, the list
// must also come from memory.
func (s *scene) requireNewField(client *ask.Client) error {
	a, err := client.Get(s.Context(), pods.Path("")+"?"+ask.AnyVersion)
	if err != nil {
		return err
	}
	// With the brace: metadata.managedFields of the old version has the bare name.
	hasField := strings.Contains(string(a.Body), `"schedulingGroup":{`)
	isForwarded := client == s.proxied && !a.FromMemory()
	if !hasField || isForwarded {
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

// whileResetting returns a fault that has the apiBalancer reset a connection now and then, while another fault lasts.
func whileResetting(interval time.Duration, fault faultFunc) faultFunc {
	return func(s *scene) time.Time {
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
		defer func() {
			cancel()
			running.Wait()
			if resets == 0 {
				s.Error("no connection was reset")
			}
		}()
		return fault(s)
	}
}
