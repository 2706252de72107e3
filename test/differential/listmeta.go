package differential

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// protobufMagic begins every body in Kubernetes' protobuf.
var protobufMagic = []byte("k8s\x00")

// listMeta reads what a list says about itself, in JSON or protobuf.
func listMeta(body []byte) (metav1.ListMeta, error) {
	if raw, ok := bytes.CutPrefix(body, protobufMagic); ok {
		var envelope runtime.Unknown
		if err := envelope.Unmarshal(raw); err != nil {
			return metav1.ListMeta{}, fmt.Errorf("a protobuf envelope: %w", err)
		}
		meta, _, err := cutListMeta(envelope.Raw)
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

// cutListMeta takes the first field (a ListMeta, in every list) off the protobuf of a list.
func cutListMeta(raw []byte) (meta metav1.ListMeta, rest []byte, err error) {
	const field1 = 0x0a // number 1, length-delimited
	size, n := 0, 0
	if len(raw) < 2 || raw[0] != field1 {
		return meta, nil, errors.New("the protobuf of a list does not begin with its metadata")
	}
	for shift := 0; ; shift += 7 {
		n++
		if n >= len(raw) || shift > 28 {
			return meta, nil, errors.New("the protobuf of a list breaks off")
		}
		size |= int(raw[n]&0x7f) << shift
		if raw[n] < 0x80 {
			break
		}
	}
	n++
	if n+size > len(raw) {
		return meta, nil, errors.New("the protobuf of a list breaks off")
	}
	err = meta.Unmarshal(raw[n : n+size])
	return meta, raw[n+size:], err
}

// revisionOf returns the revision of a list.
func revisionOf(meta metav1.ListMeta) (uint64, error) {
	revision, err := strconv.ParseUint(meta.ResourceVersion, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("a list's resourceVersion %q: %w", meta.ResourceVersion, err)
	}
	return revision, nil
}

// sameButToken reports whether two lists differ only in how they write one and the same token.
func sameButToken(a, b []byte) bool {
	ma, errA := listMeta(a)
	mb, errB := listMeta(b)
	if errA != nil || errB != nil || ma.Continue == "" || !sameToken(ma.Continue, mb.Continue) {
		return false
	}
	if !bytes.HasPrefix(a, protobufMagic) {
		return bytes.Equal(bytes.Replace(a, []byte(ma.Continue), []byte(mb.Continue), 1), b)
	}
	var ua, ub runtime.Unknown
	if ua.Unmarshal(a[len(protobufMagic):]) != nil || ub.Unmarshal(b[len(protobufMagic):]) != nil {
		return false
	}
	_, restA, errA := cutListMeta(ua.Raw)
	_, restB, errB := cutListMeta(ub.Raw)
	sameCount := (ma.RemainingItemCount == nil) == (mb.RemainingItemCount == nil) &&
		(ma.RemainingItemCount == nil || *ma.RemainingItemCount == *mb.RemainingItemCount)
	return errA == nil && errB == nil && bytes.Equal(restA, restB) && ua.TypeMeta == ub.TypeMeta &&
		ma.ResourceVersion == mb.ResourceVersion && sameCount
}
