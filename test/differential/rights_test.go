package differential_test

import (
	"net/http"
	"net/url"
	"slices"
	"testing"

	"github.com/listproxy/listproxy/test/differential"
	"github.com/listproxy/listproxy/test/differential/cluster"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/poll"
)

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
	enoughFromMemory(t, report)
	for _, user := range shared.Users() {
		if report.AskedBy(user.Name) == 0 {
			t.Errorf("%s did not ask", user.Name)
		}
	}
}

// TestRightToOneName: who may list one object gets it where the field selector demands its name,
// from memory too, and nothing else.
func TestRightToOneName(t *testing.T) {
	report, c := quiet()
	configMaps, users := resource(t, "configmaps"), shared.Users()
	one := users[slices.IndexFunc(users, func(u cluster.User) bool { return u.Name == "one" })]
	touch(t, configMaps)
	caughtUp(t, c)
	query := func(fieldSelector string) url.Values {
		q := differential.Exactly(shared.Newest(configMaps))
		q.Set("fieldSelector", fieldSelector)
		return q
	}
	for _, selector := range []string{
		"metadata.name=a-0", "metadata.name==a-0,metadata.namespace!=team-a", "metadata.name=a-0,metadata.name=a", "metadata.name=a",
		"metadata.name!=a", "", "metadata.name=",
	} {
		for _, namespace := range []string{"team-b", "team-a", ""} {
			c.Compare(t.Context(), configMaps, namespace, one, query(selector), http.Header{})
		}
	}
	finish(t, report)
	// Where a review could not be made, a list is forwarded, which is right, too.
	poll.Until(t, patience, "the one object comes from memory", func() bool {
		touch(t, configMaps) // revisions are kept for a while only
		caughtUp(t, c)
		answer, err := c.ProxyAnswer(t.Context(), configMaps, "team-b", one, query("metadata.name=a-0"))
		return err == nil && answer.Header.Get("Cache-Status") == "listproxy; hit; detail=exact"
	})
}
