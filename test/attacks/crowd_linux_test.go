package attacks

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"
)

// crowdFull is for make attacks.
var crowdFull = flag.Bool("attacks.crowd", false, "measure what callers who crowd others out cost, beside kube-apiserver's own, and print a table")

// crowdScale is a number for make attacks, and a smaller one for make test.
func crowdScale(whole, some int) int {
	if *crowdFull {
		return whole
	}
	return some
}

// crowdLength is how long the other caller works beside an attack.
func crowdLength() time.Duration { return time.Duration(crowdScale(20, 3)) * time.Second }

// A crowding is an attack that could take from others what they need.
type crowding struct {
	name string
	// args are listproxy's.
	args []string
	// hold says whose reviews kube-apiserver is slow with, where nothing is measured: they are not answered.
	hold func(r *crowdRig, token string) bool
	// measured says that memory or CPU of listproxy is looked at, which the race detector takes much of.
	measured bool
	attack   func(context.Context, *side, func()) pressed
	// holds requires what else must be true of listproxy.
	holds func(*testing.T, *side, figures)
}

// crowdings are cases a to h.
func crowdings(t *testing.T) []crowding {
	var (
		connections = crowdScale(200, 50)
		longRunning = crowdScale(100, 40)
		requests    = crowdScale(100, 40)
		strangers   = func(s *side) []string { return []string{madeUp(s, 0), madeUp(s, 1)} }
		greedy      = func(s *side) []string { return s.rig.greedy[:] }
		one         = func(s *side) []string { return s.rig.greedy[:1] }
		// Half a minute is the least that is good for something; the short form has no time.
		stall = time.Duration(crowdScale(60, 4)) * time.Second
		often = stall * 3 / 4
		// A pod is about 8 kB, and the other caller's lists are of several.
		bodies = crowdScale(2<<20, 256<<10)
	)
	return []crowding{
		{name: "none", attack: nil},
		{
			name:   "a: 740 lists/s with made-up tokens, each reset after 20 ms",
			attack: storm(float64(crowdScale(740, 300)), madeUp, anyList),
			hold:   func(_ *crowdRig, token string) bool { return strings.HasPrefix(token, madeUpPrefix) },
			holds: func(t *testing.T, s *side, f figures) {
				if n := s.held.Load(); n > 0 {
					t.Errorf("%d made-up tokens were reviewed", n)
				}
				// The other caller's own requests are authenticated as well: some directly, some by their reviews.
				own := float64(len(f.work.lists) + len(f.work.connections) + len(f.work.watches))
				if f.authentications > float64(f.attack.sent)+2*own {
					t.Errorf("%d lists with made-up tokens and %.0f of the other caller's requests cost %.0f authentications", f.attack.sent, own, f.authentications)
				}
			},
		},
		{
			name:   "b: 770 lists/s of an account without rights, each another one",
			attack: storm(float64(crowdScale(770, 300)), withoutRights, anotherList),
			hold:   func(r *crowdRig, token string) bool { return token == r.bare },
		},
		{
			name:   fmt.Sprintf("c: all of %d connections from one address", connections),
			args:   []string{"--max-connections", fmt.Sprint(connections)},
			attack: hoard(connections * 11 / 10),
		},
		{
			name:   fmt.Sprintf("d: %d long-running requests with made-up tokens from two addresses, whose bodies trickle", longRunning),
			args:   []string{"--max-long-running-requests", fmt.Sprint(longRunning), "--stall-timeout", stall.String()},
			attack: uploads(longRunning, often, "GET", "/api/v1/namespaces/shop/pods?watch=true", strangers, crowdAddress, accompliceAddr),
		},
		{
			name:   fmt.Sprintf("e: %d creates with two tokens of one account, whose bodies trickle", 2*requests),
			args:   []string{"--max-requests-inflight", fmt.Sprint(requests), "--overload-wait", "1s", "--stall-timeout", stall.String()},
			attack: uploads(requests, often, "POST", "/api/v1/namespaces/team-a/configmaps", greedy, crowdAddress, accompliceAddr),
		},
		{
			name:   fmt.Sprintf("e: %d kB of lists with two tokens of one account, who does not read them", bodies/1000),
			args:   []string{"--max-inflight-bytes", fmt.Sprint(bodies), "--overload-wait", "1s"},
			attack: stalled(crowdScale(200, 40), onePod, greedy),
		},
		{
			name:     fmt.Sprintf("f: %d unfinished headers, nearly as long as they may be", crowdScale(1000, 100)),
			attack:   unfinished(crowdScale(1000, 100)),
			measured: true,
			holds:    boundedMemory(100 << 10),
		},
		{
			name:     fmt.Sprintf("g: %d streams of /openapi/v2 with a window of 0", crowdScale(400, 100)),
			attack:   stalled(crowdScale(400, 100), openAPI, one),
			measured: true,
			holds:    boundedMemory(512 << 10),
		},
	}
}

// onePod is a list of one pod.
func onePod(*side) string {
	return "/api/v1/namespaces/shop/pods?resourceVersion=0&fieldSelector=metadata.name%3D" + crowdPods.Pod(0, "shop").Name
}

func openAPI(*side) string { return "/openapi/v2" }

// spare is memory that a process takes for this and that, whoever asks.
const spare = 48 << 20

// boundedMemory requires that what an attack sends costs no more than so much memory each.
func boundedMemory(each int64) func(*testing.T, *side, figures) {
	return func(t *testing.T, _ *side, f figures) {
		if most := spare + each*int64(f.attack.sent); f.peak-f.rss > most {
			t.Errorf("%s: %d MiB resident, and at most %d MiB: more than %d MiB more", f.attack, f.rss>>20, f.peak>>20, most>>20)
		}
	}
}

// TestCrowding lets one caller try to crowd out another: what the other caller asks for must come, and from memory
// what listproxy keeps. With -attacks.crowd it measures what that costs, and the same at kube-apiserver itself.
func TestCrowding(t *testing.T) {
	r := newCrowdRig(t)
	var rows []string
	for _, c := range crowdings(t) {
		t.Run(c.name, func(t *testing.T) {
			s := r.through(t, c)
			via := s.measure(c.attack, crowdLength())
			via.work.served(t)
			if c.holds != nil {
				c.holds(t, s, via)
			}
			t.Logf("lists: %s; watches: %s; %s; %.0f authentications, %.0f reviews; %d to %d MiB",
				reasons(via.work.lists), reasons(via.work.watches), via.attack, via.authentications, via.reviews, via.rss>>20, via.peak>>20)
			if *crowdFull {
				rows = append(rows, row(c.name, via, r.directly(t).measure(c.attack, crowdLength())))
			}
		})
	}
	chain := newChain(t, chainLength)
	t.Run("h: chains of certificates", func(t *testing.T) {
		if *crowdFull {
			attack := chains(chain)
			via := r.through(t, certified(r)).measure(attack, crowdLength())
			via.work.served(t)
			rows = append(rows, row("h: connections with 99 certificates, two at a time", via, r.directly(t).measure(attack, crowdLength())))
		}
		testChains(t, r, chain)
	})
	t.Run("i: what made-up tokens are told", func(t *testing.T) { testTold(t, r) })
	if *crowdFull {
		crowdSay("%s", crowdTable)
		for _, row := range rows {
			crowdSay("%s", row)
		}
	}
}
