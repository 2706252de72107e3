package body

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// protobufMagic begins every body in Kubernetes' protobuf.
var protobufMagic = []byte("k8s\x00")

// ListMeta reads what a list says about itself, in JSON or protobuf.
func ListMeta(body []byte) (metav1.ListMeta, error) {
	if raw, ok := bytes.CutPrefix(body, protobufMagic); ok {
		var envelope runtime.Unknown
		if err := envelope.Unmarshal(raw); err != nil {
			return metav1.ListMeta{}, fmt.Errorf("a protobuf envelope: %w", err)
		}
		meta, _, err := cutListMeta(envelope)
		return meta, err
	}
	var list struct {
		Metadata metav1.ListMeta `json:"metadata"`
	}
	// Custom resources have their metadata last; reading all the items for it would be dear.
	if i := bytes.LastIndex(body, []byte(`,"metadata":{"continue":`)); i >= 0 && json.Unmarshal(append([]byte{'{'}, body[i+1:]...), &list) == nil {
		return list.Metadata, nil
	}
	// Built-in types have it first.
	if i := bytes.Index(body, []byte(`"items":[`)); i > 0 && bytes.HasPrefix(body, []byte(`{"kind":`)) {
		head := append(bytes.Clone(body[:i-1]), '}')
		if json.Unmarshal(head, &list) == nil {
			return list.Metadata, nil
		}
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return metav1.ListMeta{}, fmt.Errorf("a list: %w", err)
	}
	return list.Metadata, nil
}

// cutListMeta takes the ListMeta off the protobuf of a list. It is the first field of every list
// but those of meta.k8s.io/v1beta1, where it is the second.
func cutListMeta(envelope runtime.Unknown) (meta metav1.ListMeta, rest []byte, err error) {
	const lengthDelimited = 2
	own := uint64(1)
	if envelope.APIVersion == "meta.k8s.io/v1beta1" && envelope.Kind == "PartialObjectMetadataList" {
		own = 2
	}
	found := false
	for raw := envelope.Raw; len(raw) > 0; {
		tag, n := binary.Uvarint(raw)
		size, m := binary.Uvarint(raw[max(0, n):])
		if n <= 0 || m <= 0 || tag&7 != lengthDelimited || size > uint64(len(raw)-n-m) {
			return meta, nil, errors.New("the protobuf of a list is none")
		}
		end := n + m + int(size) // #nosec G115 -- not larger than raw
		if tag>>3 != own || found {
			rest = append(rest, raw[:end]...)
		} else if err := meta.Unmarshal(raw[n+m : end]); err != nil {
			return meta, nil, fmt.Errorf("the metadata of a list: %w", err)
		} else {
			found = true
		}
		raw = raw[end:]
	}
	if !found {
		return meta, nil, errors.New("the protobuf of a list has no metadata")
	}
	return meta, rest, nil
}

// RevisionOf returns the revision of a list.
func RevisionOf(meta metav1.ListMeta) (uint64, error) {
	revision, err := strconv.ParseUint(meta.ResourceVersion, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("a list's resourceVersion %q: %w", meta.ResourceVersion, err)
	}
	return revision, nil
}

// SameButToken reports whether two lists differ only in how they write one and the same token.
func SameButToken(a, b []byte) bool {
	ma, errA := ListMeta(a)
	mb, errB := ListMeta(b)
	return errA == nil && errB == nil && ma.Continue != "" && SameToken(ma.Continue, mb.Continue) &&
		sameBut(a, b, ma, mb, quoted(ma.Continue), quoted(mb.Continue))
}

// OnlyTokenMissing reports whether the list a differs from the list b only in that it has no token,
// and returns that of b.
func OnlyTokenMissing(a, b []byte) (string, bool) {
	ma, errA := ListMeta(a)
	mb, errB := ListMeta(b)
	text := `,"continue":"` + mb.Continue + `"`
	if bytes.HasPrefix(b, []byte("{\n")) { // indented
		text = ",\n    \"continue\": \"" + mb.Continue + `"`
	}
	ok := errA == nil && errB == nil && ma.Continue == "" && mb.Continue != "" &&
		sameBut(a, b, ma, mb, nil, []byte(text))
	return mb.Continue, ok
}

func quoted(s string) []byte { return []byte(`"` + s + `"`) }

// sameBut compares two lists without their tokens: in JSON, these are the texts that stand for
// them.
func sameBut(a, b []byte, ma, mb metav1.ListMeta, textA, textB []byte) bool {
	if !bytes.HasPrefix(a, protobufMagic) {
		return bytes.Equal(a, bytes.Replace(b, textB, textA, 1))
	}
	if !bytes.HasPrefix(b, protobufMagic) {
		return false
	}
	var ua, ub runtime.Unknown
	if ua.Unmarshal(a[len(protobufMagic):]) != nil || ub.Unmarshal(b[len(protobufMagic):]) != nil {
		return false
	}
	_, restA, errA := cutListMeta(ua)
	_, restB, errB := cutListMeta(ub)
	if errA != nil || errB != nil {
		return false
	}
	ua.Raw, ub.Raw, ma.Continue, mb.Continue = restA, restB, "", ""
	return reflect.DeepEqual(ua, ub) && reflect.DeepEqual(ma, mb)
}
