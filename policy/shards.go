package policy

import (
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/sharding"
)

// shardRange matches one range of a shardSelector (KEP-5866), as clients write it. The range's end may be 2^64, one more
// than the largest hash. kube-apiserver parses CEL, which allows other spellings of the same range. Requests with those are
// forwarded.
var shardRange = regexp.MustCompile(
	`^ *shardRange\((object\.metadata\.(?:uid|namespace)), *'(0x[0-9a-f]{16})', *'(0x[0-9a-f]{16}|0x10000000000000000)'\) *$`)

// parseShards parses a shardSelector: ranges of the hash of one field, joined with ||. If ok is false, the request must be
// forwarded.
func parseShards(raw string) (selector sharding.Selector, ok bool) {
	if len(raw) > maxSelectorLength {
		return nil, false
	}
	var ranges []sharding.ShardRangeRequirement
	for written := range strings.SplitSeq(raw, "||") {
		found := shardRange.FindStringSubmatch(written)
		if found == nil || len(ranges) == maxRequirements {
			return nil, false
		}
		r := sharding.ShardRangeRequirement{Key: found[1], Start: found[2], End: found[3]}
		if !sharding.HexLess(r.Start, r.End) || (len(ranges) > 0 && r.Key != ranges[0].Key) {
			return nil, false
		}
		ranges = append(ranges, r)
	}
	return sharding.NewSelector(ranges...), true
}
