package attacks

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/harness"
)

// crowdFull is for make attacks.
var crowdFull = flag.Bool("attacks.crowd", false,
	"measure what callers who crowd others out cost, beside kube-apiserver's own, and print a table")

// crowdScale is a number for make attacks, and a smaller one for make test-all.
func crowdScale(whole, some int) int {
	if *crowdFull {
		return whole
	}
	return some
}

// crowdLength is how long the other caller works beside an attack.
func crowdLength() time.Duration { return time.Duration(crowdScale(20, 3)) * time.Second }

// A crowdAttack attacks a side until its context ends. It calls ready when all of it is in place.
type crowdAttack func(ctx context.Context, s *side, ready func()) pressed

// A crowding is an attack that could take from others what they need.
type crowding struct {
	name, what string
	// args are listproxy's.
	args []string
	// slow says whose reviews kube-apiserver does not answer, where nothing is measured: so whether
	// they take others' places does not depend on how fast the machine is.
	slow   func(r *crowdRig, token string) bool
	attack crowdAttack
	// always: make test-all has it, too. What the others require is held there by unit tests,
	// test/e2e/forwarding and test/faults/limits.
	always bool
	// holds requires what else must be true of listproxy.
	holds func(*testing.T, *side, figures)
}

// crowdings are the attacks that are measured in the same way.
func crowdings() []crowding {
	var (
		requests = 100
		headers  = 1000
		streams  = 400
		// A pod is about 8 kB, and the other caller's lists are of several.
		bodies = crowdScale(2<<20, 256<<10)
		// The bound of a stall, and how often a byte comes that keeps below it.
		stall  = time.Minute
		often  = stall * 3 / 4
		greedy = func(s *side) []string { return s.rig.greedy[:] }
		// kube-apiserver does not queue the admin's requests: what they hold takes nothing of the
		// other caller's there.
		exempt = func(s *side) []string { return []string{s.rig.plane.Token(admin)} }
	)
	const (
		madeUpLists  = 740 // a second
		strangeLists = 770
		fewer        = 300 // where nothing is measured
	)
	return []crowding{
		{name: "none", what: "none", always: true},
		{
			name:   "made-up tokens",
			what:   fmt.Sprintf("%d lists/s with made-up tokens, each reset after %v", madeUpLists, givenUp),
			attack: storm(crowdScale(madeUpLists, fewer), madeUp, anyList),
			slow:   func(_ *crowdRig, token string) bool { return strings.HasPrefix(token, madeUpPrefix) },
			holds:  reviewedOnce,
			always: true,
		},
		{
			name:   "no rights",
			what:   fmt.Sprintf("%d lists/s of an account without rights, each another one, reset after %v", strangeLists, givenUp),
			attack: storm(crowdScale(strangeLists, fewer), withoutRights, anotherList),
			slow:   func(r *crowdRig, token string) bool { return token == r.bare },
			always: true,
		},
		{
			name: "two tokens",
			what: fmt.Sprintf("%d creates with two tokens of one account, whose bodies trickle, for %d places",
				2*requests, requests),
			args: []string{
				"--max-requests-inflight", strconv.Itoa(requests),
			},
			attack: uploads(requests, often, http.MethodPost, "/api/v1/namespaces/team-a/configmaps", greedy),
		},
		{
			name:   "two tokens' bytes",
			what:   fmt.Sprintf("lists with two tokens of one account that does not read them, for %d KiB", bodies>>10),
			args:   []string{"--max-inflight-bytes", strconv.Itoa(bodies)},
			attack: stalled(crowdScale(200, 40), onePod, greedy),
			always: true,
		},
		{
			name:   "windows",
			what:   fmt.Sprintf("%d streams of /openapi/v2 with a window of 0", streams),
			attack: stalled(streams, openAPI, exempt),
			holds:  boundedMemory(384 << 10),
		},
		{
			name:   "headers",
			what:   fmt.Sprintf("%d unfinished headers, nearly as long as they may be", headers),
			attack: unfinished(headers),
			holds:  boundedMemory(400 << 10),
		},
	}
}

// reviewedOnce requires that a made-up token costs kube-apiserver one review at most, beside the list
// itself.
func reviewedOnce(t *testing.T, _ *side, f figures) {
	t.Helper()
	if most := f.attack.sent + 2*(len(f.work.lists)+len(f.work.connections)); f.reviews > float64(most) {
		t.Errorf("%d lists with made-up tokens, and %.0f reviews", f.attack.sent, f.reviews)
	}
}

// onePod is a list of one pod.
func onePod(*side) string {
	return "/api/v1/namespaces/shop/pods?resourceVersion=0&fieldSelector=metadata.name%3D" + crowdPods.Pod(0, "shop").Name
}

func openAPI(*side) string { return "/openapi/v2" }

// spare is memory that a process takes for this and that, whoever asks.
const spare = 24 << 20

// boundedMemory requires that what an attack sends costs no more than so much memory each.
func boundedMemory(each int64) func(*testing.T, *side, figures) {
	return func(t *testing.T, _ *side, f figures) {
		if most := spare + each*int64(f.attack.sent); f.peak-f.rss > most {
			t.Errorf("%s: %d MiB resident, and at most %d MiB: more than %d MiB more", f.attack, f.rss>>20, f.peak>>20, most>>20)
		}
	}
}

// TestCrowding lets one caller try to crowd out another: what the other caller asks for must come,
// and from memory what listproxy keeps. With -attacks.crowd it measures what that costs, and the
// same at kube-apiserver itself.
func TestCrowding(t *testing.T) {
	harness.Long(t)
	r := newCrowdRig(t)
	var tables crowdTables
	for _, c := range crowdings() {
		if !c.always && !*crowdFull {
			continue
		}
		t.Run(c.name, func(t *testing.T) { testCrowding(t, r, c, &tables) })
	}
	t.Run("watches", func(t *testing.T) { testWatchCrowdings(t, r, &tables) })
	t.Run("price", func(t *testing.T) { testPrice(t, r, &tables) })
	if !*crowdFull {
		return
	}
	chain := newChain(t, chainLength)
	c := crowding{
		name: "chains", what: fmt.Sprintf("connections with %d certificates, two at a time", chainLength),
		args: []string{"--client-ca-file", r.plane.CAPath()}, attack: chains(chain),
	}
	t.Run(c.name, func(t *testing.T) {
		testCrowding(t, r, c, &tables)
		testChains(t, r, c, chain, &tables)
		testChains(t, r, c, newChain(t, mostVerified), &tables)
	})
	tables.print()
}

// testCrowding makes one attack on listproxy, and if it is measured the same on kube-apiserver.
func testCrowding(t *testing.T, r *crowdRig, c crowding, tables *crowdTables) {
	t.Helper()
	s := r.through(t, c)
	via := s.measure(c.attack, crowdLength())
	via.work.served(t)
	if c.holds != nil {
		c.holds(t, s, via)
	}
	t.Logf("lists: %s; watches: %s; %s; %.0f authentications, %.0f reviews; %d to %d MiB",
		reasons(via.work.lists), reasons(via.work.watches), via.attack,
		via.authentications, via.reviews, via.rss>>20, via.peak>>20)
	if *crowdFull {
		tables.crowding(c.what, via, r.directly(t).measure(c.attack, crowdLength()))
	}
}
