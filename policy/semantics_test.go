package policy

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/storage"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/test/expect"
)

const (
	goodStart = "ns-1/pod-7\x00"
	huge      = "9223372036854775808" // the largest int64 and one more
)

// The rows of the table, with the upstream's own tokens.
var (
	versions = []string{"", "0", "5000", "00", "-1", "x", huge}
	matches  = []string{"", "NotOlderThan", "Exact", "Bogus"}
	limits   = []int64{0, 3}
)

// tokens by the name of their column.
func tokens(t testing.TB) map[string]string {
	return map[string]string{
		"none":      "",
		"good":      upstreamToken(t, goodStart, 4711),
		"newest":    upstreamToken(t, goodStart, -1),
		"malformed": "not a token",
	}
}

func serve(semantics Semantics, revision uint64, limit int64) Decision {
	return Decision{Serve: true, Semantics: semantics, Revision: revision, Limit: limit}
}

// table is what is not refused, in rows without a continue token, first by match, then by
// resourceVersion: {no limit, limit 3}.
var table = map[string]map[string][2]Decision{
	"": {
		"":     {forward(reason.MostRecent), forward(reason.MostRecent)},
		"0":    {serve(Any, 0, 0), serve(Any, 0, 0)},
		"5000": {serve(NotOlderThan, 5000, 0), serve(Exact, 5000, 3)},
	},
	"NotOlderThan": {
		"0":    {serve(Any, 0, 0), serve(Any, 0, 0)},
		"5000": {serve(NotOlderThan, 5000, 0), serve(NotOlderThan, 5000, 3)},
	},
	"Exact": {
		"5000": {serve(Exact, 5000, 0), serve(Exact, 5000, 3)},
	},
}

// decide decides as without a rule.
func decide(o ListOptions) Decision { return decideList(o, LimitIgnored, ConsistentNever) }

// continuations are the only rows with a token that are not refused, by token: without match and
// resourceVersion.
var continuations = map[string][2]Decision{
	"good": {
		{Serve: true, Semantics: Continue, Revision: 4711, Start: goodStart},
		{Serve: true, Semantics: Continue, Revision: 4711, Start: goodStart, Limit: 3},
	},
	"newest": {forward(reason.MostRecent), forward(reason.MostRecent)},
}

// TestDecideTable: where limits are honoured at resourceVersion=0, only how much is written differs.
func TestDecideTable(t *testing.T) {
	for _, match := range matches {
		for _, version := range versions {
			for name, token := range tokens(t) {
				for i, limit := range limits {
					options := ListOptions{ResourceVersion: version, ResourceVersionMatch: match, Continue: token, Limit: limit}
					rows, known := table[match][version]
					if token != "" {
						rows, known = continuations[name]
						known = known && match == "" && version == ""
					}
					want := forward(reason.NotCanonical)
					if known {
						want = rows[i]
					}
					t.Run(fmt.Sprintf("rv=%s,match=%s,limit=%d,continue=%s", version, match, limit, name), func(t *testing.T) {
						got := decide(options)
						expect.Same(t, want, got)
						checkWithUpstream(t, options, got)
						if want.Semantics == Any {
							want.Limit = limit
						}
						expect.Same(t, want, decideList(options, LimitHonoured, ConsistentNever))
					})
				}
			}
		}
	}
}

// checkWithUpstream holds a decision against the API server's own two validations:
// the one of its handlers (422) and the one of its storage (400).
func checkWithUpstream(t *testing.T, o ListOptions, got Decision) {
	t.Helper()
	refused := len(validation.ValidateListOptions(&internalversion.ListOptions{
		ResourceVersion:      o.ResourceVersion,
		ResourceVersionMatch: metav1.ResourceVersionMatch(o.ResourceVersionMatch),
		Continue:             o.Continue,
		Limit:                o.Limit,
	}, true)) > 0
	exactRevision, key, err := storage.ValidateListOptions("/pods/", storage.APIObjectVersioner{}, storage.ListOptions{
		ResourceVersion:      o.ResourceVersion,
		ResourceVersionMatch: metav1.ResourceVersionMatch(o.ResourceVersionMatch),
		Predicate:            storage.SelectionPredicate{Continue: o.Continue, Limit: o.Limit},
		Recursive:            true,
	})

	if refused && got.Reason != reason.NotCanonical {
		t.Errorf("the upstream refuses the combination, the reason is %q", got.Reason)
	}
	_, plain := parseDecimal(o.ResourceVersion)
	if got.Reason == reason.NotCanonical && !refused && err == nil && o.Continue == "" && (plain || o.ResourceVersion == "") {
		t.Error("the upstream accepts what is written plainly, and we do not")
	}
	if err != nil && got.Serve {
		t.Errorf("served, but the upstream's storage says: %v", err)
	}
	if !got.Serve {
		return
	}
	switch got.Semantics {
	case Exact, Continue:
		if uint64(exactRevision) != got.Revision {
			t.Errorf("revision %d, upstream reads at %d", got.Revision, exactRevision)
		}
	case Any, NotOlderThan:
		if exactRevision != 0 {
			t.Errorf("%s, but the upstream reads exactly at %d", got.Semantics, exactRevision)
		}
	default:
		t.Errorf("served with semantics %q", got.Semantics)
	}
	if got.Semantics == Continue && key != "/pods/"+got.Start {
		t.Errorf("start %q, upstream starts at %q", got.Start, key)
	}
}
