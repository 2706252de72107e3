package policy

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/storage"

	"github.com/listproxy/listproxy/policy/reason"
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

// table is the expectation for every combination, first by match, then by
// resourceVersion, in rows without a continue token: {no limit, limit 3}.
var table = map[string]map[string][2]Decision{
	"": {
		"":     {forward(reason.MostRecent), forward(reason.MostRecent)},
		"0":    {serve(Any, 0, 0), serve(Any, 0, 0)},
		"5000": {serve(NotOlderThan, 5000, 0), serve(Exact, 5000, 3)},
		"00":   {forward(reason.NotCanonical), forward(reason.NotCanonical)},
		"-1":   {forward(reason.NotCanonical), forward(reason.NotCanonical)},
		"x":    {forward(reason.NotCanonical), forward(reason.NotCanonical)},
		huge:   {forward(reason.NotCanonical), forward(reason.NotCanonical)},
	},
	"NotOlderThan": {
		"":     {forward(reason.NotCanonical), forward(reason.NotCanonical)},
		"0":    {serve(Any, 0, 0), serve(Any, 0, 0)},
		"5000": {serve(NotOlderThan, 5000, 0), serve(NotOlderThan, 5000, 3)},
		"00":   {forward(reason.NotCanonical), forward(reason.NotCanonical)},
		"-1":   {forward(reason.NotCanonical), forward(reason.NotCanonical)},
		"x":    {forward(reason.NotCanonical), forward(reason.NotCanonical)},
		huge:   {forward(reason.NotCanonical), forward(reason.NotCanonical)},
	},
	"Exact": {
		"":     {forward(reason.NotCanonical), forward(reason.NotCanonical)},
		"0":    {forward(reason.NotCanonical), forward(reason.NotCanonical)},
		"5000": {serve(Exact, 5000, 0), serve(Exact, 5000, 3)},
		"00":   {forward(reason.NotCanonical), forward(reason.NotCanonical)},
		"-1":   {forward(reason.NotCanonical), forward(reason.NotCanonical)},
		"x":    {forward(reason.NotCanonical), forward(reason.NotCanonical)},
		huge:   {forward(reason.NotCanonical), forward(reason.NotCanonical)},
	},
	"Bogus": {
		"":     {forward(reason.NotCanonical), forward(reason.NotCanonical)},
		"0":    {forward(reason.NotCanonical), forward(reason.NotCanonical)},
		"5000": {forward(reason.NotCanonical), forward(reason.NotCanonical)},
		"00":   {forward(reason.NotCanonical), forward(reason.NotCanonical)},
		"-1":   {forward(reason.NotCanonical), forward(reason.NotCanonical)},
		"x":    {forward(reason.NotCanonical), forward(reason.NotCanonical)},
		huge:   {forward(reason.NotCanonical), forward(reason.NotCanonical)},
	},
}

// decide decides as without a rule.
func decide(o ListOptions) Decision { return decideList(o, LimitIgnored, ConsistentNever) }

// continuations are the only rows with a token that are not refused: without
// match, and resourceVersion unset or 0; first by resourceVersion, then by token.
var continuations = map[string]map[string][2]Decision{
	"": {
		"good": {
			{Serve: true, Semantics: Continue, Revision: 4711, Start: goodStart},
			{Serve: true, Semantics: Continue, Revision: 4711, Start: goodStart, Limit: 3},
		},
		"newest":    {forward(reason.MostRecent), forward(reason.MostRecent)},
		"malformed": {forward(reason.NotCanonical), forward(reason.NotCanonical)},
	},
	"0": {
		"good":      {forward(reason.NotCanonical), forward(reason.NotCanonical)},
		"newest":    {forward(reason.NotCanonical), forward(reason.NotCanonical)},
		"malformed": {forward(reason.NotCanonical), forward(reason.NotCanonical)},
	},
}

func TestDecideTable(t *testing.T) {
	for _, match := range matches {
		for _, version := range versions {
			for name, token := range tokens(t) {
				for i, limit := range limits {
					options := ListOptions{ResourceVersion: version, ResourceVersionMatch: match, Continue: token, Limit: limit}
					want := forward(reason.NotCanonical)
					if token == "" {
						want = table[match][version][i]
					} else if rows, ok := continuations[version]; ok && match == "" {
						want = rows[name][i]
					}
					t.Run(fmt.Sprintf("rv=%s,match=%s,limit=%d,continue=%s", version, match, limit, name), func(t *testing.T) {
						got := decide(options)
						if diff := cmp.Diff(want, got); diff != "" {
							t.Errorf("decideList (-want +got):\n%s", diff)
						}
						checkWithUpstream(t, options, got)
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

// TestHonouredLimit: it matters at resourceVersion=0, and only for how much is written.
func TestHonouredLimit(t *testing.T) {
	for _, match := range matches {
		for _, version := range versions {
			for name, token := range tokens(t) {
				for _, limit := range limits {
					options := ListOptions{ResourceVersion: version, ResourceVersionMatch: match, Continue: token, Limit: limit}
					want := decide(options)
					if want.Semantics == Any {
						want.Limit = limit
					}
					if diff := cmp.Diff(want, decideList(options, LimitHonoured, ConsistentNever)); diff != "" {
						t.Errorf("rv=%s,match=%s,limit=%d,continue=%s (-want +got):\n%s", version, match, limit, name, diff)
					}
				}
			}
		}
	}
}
