package policy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/storage"

	"github.com/listproxy/listproxy/policy/reason"
)

// goodStart is the start key of a good continue token.
const goodStart = "ns-1/pod-7\x00"

// The values of resourceVersion and resourceVersionMatch that are combined.
var (
	testedVersions = []string{"", "0", "5000", "00", "-1", "x", "9223372036854775808"} // the last is MaxInt64 + 1
	testedMatches  = []string{"", "NotOlderThan", "Exact", "Bogus"}
)

// TestDecideListAgreesWithUpstream: for every combination of options, decideList agrees with the API server's own code.
func TestDecideListAgreesWithUpstream(t *testing.T) {
	for _, match := range testedMatches {
		for _, version := range testedVersions {
			for _, token := range []string{"", upstreamToken(t, goodStart, 4711), upstreamToken(t, goodStart, -1), "not a token"} {
				for _, limit := range []int64{0, 3} {
					checkList(t, ListOptions{ResourceVersion: version, ResourceVersionMatch: match, Continue: token, Limit: limit})
				}
			}
		}
	}
}

// checkList requires that decideList answers a list from memory if and only if all these conditions hold:
//
//   - The API server accepts the options, in its handlers (else 422) and in its storage (else 400).
//   - The resourceVersion and the token are spelled canonically, and only one of them is given.
//   - One of them names a revision, or the resourceVersion is "0". (ConsistentNone forwards a list of the newest state.)
//
// The decision must have the semantics, the revision and the start key that the API server's storage reads. With LimitIgnored, a
// list at resourceVersion=0 has no limit. In all else, LimitIgnored and LimitHonoured must not differ.
func checkList(t *testing.T, o ListOptions) {
	t.Helper()
	const watchList = true // the feature
	isRefused := len(validation.ValidateListOptions(&internalversion.ListOptions{
		ResourceVersion:      o.ResourceVersion,
		ResourceVersionMatch: metav1.ResourceVersionMatch(o.ResourceVersionMatch),
		Continue:             o.Continue,
		Limit:                o.Limit,
	}, watchList)) > 0
	// exactRevision is the revision at which the storage must read, or 0 if the storage may choose a revision.
	exactRevision, startKey, storageErr := storage.ValidateListOptions("/pods/", storage.APIObjectVersioner{}, storage.ListOptions{
		ResourceVersion:      o.ResourceVersion,
		ResourceVersionMatch: metav1.ResourceVersionMatch(o.ResourceVersionMatch),
		Predicate:            storage.SelectionPredicate{Continue: o.Continue, Limit: o.Limit},
		Recursive:            true,
	})
	lowestRevision, isDecimal := parseDecimal(o.ResourceVersion)
	_, tokenRevision, isCanonical := DecodeContinue(o.Continue)
	hasVersion, hasToken := o.ResourceVersion != "", o.Continue != ""
	isBadVersion := hasVersion && !isDecimal
	isBadToken := hasToken && !isCanonical
	asksForNewest := !hasVersion && (!hasToken || tokenRevision < 0)
	want := Decision{Revision: uint64(exactRevision), Limit: o.Limit}
	switch { // the first case that applies
	case isRefused, isBadVersion, isBadToken, hasVersion && hasToken:
		want = forward(reason.NotCanonical)
	case asksForNewest: // storageErr does not matter, since decideList does not answer the list
		want = forwardConsistent()
	case storageErr != nil:
		want = forward(reason.NotCanonical)
	case hasToken:
		want.Semantics = Continue
		want.Start = strings.TrimPrefix(startKey, "/pods/")
	case exactRevision != 0:
		want.Semantics = Exact
	case lowestRevision == 0:
		want.Semantics = Any
	default:
		want.Semantics = NotOlderThan
		want.Revision = lowestRevision
	}
	for _, limitAtZero := range []LimitAtZero{LimitHonoured, LimitIgnored} {
		if limitAtZero == LimitIgnored && want.Semantics == Any {
			want.Limit = 0
		}
		if diff := cmp.Diff(want, decideList(o, limitAtZero, ConsistentNone)); diff != "" {
			t.Errorf("%+v, limit at 0 %s (-want +got):\n%s", o, limitAtZero, diff)
		}
	}
}
