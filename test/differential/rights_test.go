package differential_test

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/differential"
	"github.com/listproxy/listproxy/test/differential/cluster"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// TestRights: alice, who may list pods in one namespace, gets what kube-apiserver gives her, on
// every path, also right after the admin has asked for the same list.
func TestRights(t *testing.T) {
	harness.Long(t)
	report, c := quiet()
	users := shared.Users()
	var all sync.WaitGroup
	revisions := make([]string, len(shared.Resources))
	for i, r := range shared.Resources {
		revisions[i] = strconv.FormatUint(touch(t, r), 10)
	}
	caughtUp(t, c)
	for i, r := range shared.Resources {
		revision := revisions[i]
		all.Go(func() {
			namespaces := []string{""}
			if r.Namespaced {
				namespaces = append(namespaces, "team-a", "team-b")
			}
			for _, namespace := range namespaces {
				for _, query := range []url.Values{
					{},
					{"resourceVersion": {"0"}},
					{"resourceVersion": {revision}},
					{"resourceVersion": {revision}, "limit": {"2"}},
					{"resourceVersion": {revision}, "resourceVersionMatch": {"Exact"}},
				} {
					for _, user := range []cluster.User{users[0], users[1], users[2+i%(len(users)-2)]} {
						c.Compare(t.Context(), r, namespace, user, query, http.Header{})
					}
				}
			}
		})
	}
	all.Wait()
	finish(t, report)
	unexpired(t, report)
	if share := report.Share(); share < 0.9 {
		t.Errorf("only %.0f%% of what can be answered came from memory", 100**shared.Share)
	}
}

// TestCallers compares under churn as everybody, by token, by certificate and as another: each
// gets what kube-apiserver gives them, and not a byte more.
func TestCallers(t *testing.T) {
	harness.Long(t)
	shared.ChangeUntilEnd(t, 30)
	report := differential.NewReport()
	comparator := differential.NewComparator(shared.Cluster, differential.SideOf(shared.Healthy), report, differential.Options{Bound: differential.HealthyBound, Everybody: true})
	warm(t, comparator)
	ctx, cancel := bounded(t.Context(), report, func() bool {
		return !slices.ContainsFunc(shared.Users(), func(user cluster.User) bool { return report.AskedBy(user.Name) == 0 })
	})
	defer cancel()
	comparator.Run(ctx, *shared.Seed, 16)
	finish(t, report)
	unexpired(t, report)
	if got := report.Share(); got < *shared.Share {
		t.Errorf("%.1f%% of what can be answered came from memory, at least %.1f%% should", 100*got, 100**shared.Share)
	}
	for _, user := range shared.Users() {
		if report.AskedBy(user.Name) == 0 {
			t.Errorf("%s did not ask", user.Name)
		}
	}
}

// TestRightsChange: a right that is given holds at once, one that is taken ends within the TTL of
// reviews.
func TestRightsChange(t *testing.T) {
	harness.Long(t)
	const ttl = 10 * time.Second // the default of --review-ttl
	report, c := quiet()
	configMaps := resource(t, "configmaps")
	alice := shared.Users()[1]
	touch(t, configMaps)
	caughtUp(t, c)
	query := func() url.Values { return differential.Exactly(shared.Newest(configMaps)) }
	kubectl := func(args ...string) {
		t.Helper()
		if _, err := shared.Plane.Kubectl(t.Context(), controlplane.Admin, append(args, "-n", "team-b")...); err != nil {
			t.Fatal(err)
		}
	}
	// await waits until one side answers alice with a status, and returns how long after its
	// beginning she asked for the last list that she was given until then.
	await := func(ask func() (differential.Answer, error), status int) (last time.Duration, ok bool) {
		t.Helper()
		for begun := time.Now(); time.Since(begun) < patience; {
			asked := time.Since(begun)
			answer, err := ask()
			expect.NoError(t, err)
			if answer.Status == status {
				return last, true
			}
			if answer.Status == http.StatusOK {
				last = asked
			}
			if !poll.Pause(t.Context(), 5*time.Millisecond) {
				break
			}
		}
		return last, false
	}
	direct := func() (differential.Answer, error) {
		return c.DirectAnswer(t.Context(), configMaps, "team-b", alice, query())
	}
	proxied := func() (differential.Answer, error) {
		return c.ProxyAnswer(t.Context(), configMaps, "team-b", alice, query())
	}
	compare := func() { c.Compare(t.Context(), configMaps, "team-b", alice, query(), http.Header{}) }

	compare() // forbidden
	kubectl("create", "role", "configmap-lister", "--verb=list", "--resource=configmaps")
	for range 3 {
		kubectl("create", "rolebinding", "alice-lists", "--role=configmap-lister", "--user=alice")
		if _, ok := await(direct, http.StatusOK); !ok {
			t.Fatal("the API server does not give alice the right")
		}
		touch(t, configMaps) // revisions are kept for a while only
		caughtUp(t, c)
		compare()
		if answer := fromMemory(t, c, configMaps, http.StatusOK, proxied); answer.Header.Get("Cache-Status") != exactHit {
			t.Fatalf("alice's list does not come from memory: %d, %v", answer.Status, answer.Header)
		}
		kubectl("delete", "rolebinding", "alice-lists")
		if _, ok := await(direct, http.StatusForbidden); !ok {
			t.Fatal("the API server does not take alice's right")
		}
		last, ok := await(proxied, http.StatusForbidden)
		if !ok {
			t.Fatal("alice keeps a right that she does not have")
		}
		t.Logf("alice was last given the list that she asked for %v after the API server's no", last.Round(time.Millisecond))
		if last > ttl {
			t.Errorf("a right outlived its end by %v, longer than the TTL of %v", last, ttl)
		}
		compare()
	}
	finish(t, report)
}

// TestRightToOneName: who may list one object gets it where the field selector demands its name,
// from memory too, and nothing else.
func TestRightToOneName(t *testing.T) {
	report, c := quiet()
	configMaps := resource(t, "configmaps")
	alice := shared.Users()[1]
	touch(t, configMaps)
	for _, args := range [][]string{
		{"create", "role", "lists-one", "--verb=list", "--resource=configmaps", "--resource-name=a-0"},
		{"create", "rolebinding", "alice-lists-one", "--role=lists-one", "--user=alice"},
	} {
		if _, err := shared.Plane.Kubectl(t.Context(), controlplane.Admin, append(args, "-n", "team-b")...); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		_, _ = shared.Plane.Kubectl(t.Context(), controlplane.Admin, "delete", "rolebinding", "alice-lists-one", "-n", "team-b")
	})
	query := func(fieldSelector string) url.Values {
		q := differential.Exactly(shared.Newest(configMaps))
		q.Set("fieldSelector", fieldSelector)
		return q
	}
	var answer differential.Answer
	for begun := time.Now(); answer.Status != http.StatusOK; {
		var err error
		if answer, err = c.DirectAnswer(t.Context(), configMaps, "team-b", alice, query("metadata.name=a-0")); err != nil {
			t.Fatal(err)
		}
		if time.Since(begun) > patience || !poll.Pause(t.Context(), 5*time.Millisecond) {
			t.Fatalf("the API server does not give alice the right: %d", answer.Status)
		}
	}
	touch(t, configMaps) // revisions are kept for a while only
	caughtUp(t, c)
	for selector, status := range map[string]int{
		"metadata.name=a-0": http.StatusOK, "metadata.name==a-0,metadata.namespace!=team-a": http.StatusOK,
		"metadata.name=a-0,metadata.name=a": http.StatusForbidden, "metadata.name=a": http.StatusForbidden,
		"metadata.name!=a": http.StatusForbidden, "": http.StatusForbidden, "metadata.name=": http.StatusForbidden,
	} {
		for _, namespace := range []string{"team-b", "team-a", ""} {
			c.Compare(t.Context(), configMaps, namespace, alice, query(selector), http.Header{})
		}
		got := fromMemory(t, c, configMaps, status, func() (differential.Answer, error) {
			return c.ProxyAnswer(t.Context(), configMaps, "team-b", alice, query(selector))
		})
		if got.Status != status {
			t.Errorf("%q: %d, want %d", selector, got.Status, status)
		}
		if hit := got.Header.Get("Cache-Status") == exactHit; hit != (status == http.StatusOK) {
			t.Errorf("%q came from %q", selector, got.Header.Get("Cache-Status"))
		}
	}
	finish(t, report)
}

// exactHit is the Cache-Status of an exact list from memory.
const exactHit = "listproxy; hit; detail=exact"

// fromMemory asks, and again where a list that is due was forwarded: that is right too, and happens
// where a review could not be made. It returns the first other answer, or the last one when
// patience ended.
func fromMemory(t *testing.T, c *differential.Comparator, r cluster.Resource, due int, ask func() (differential.Answer, error)) differential.Answer {
	t.Helper()
	for begun := time.Now(); ; {
		answer, err := ask()
		expect.NoError(t, err)
		again := due == http.StatusOK && answer.Status == due && strings.Contains(answer.Header.Get("Cache-Status"), "fwd=")
		if !again || time.Since(begun) > patience {
			return answer
		}
		touch(t, r) // revisions are kept for a while only
		caughtUp(t, c)
	}
}
