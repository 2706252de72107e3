// Package body reads and compares bodies of lists in any representation: their metadata and continue tokens.
package body

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Token is the content of a continue token.
type Token struct {
	Version  string `json:"v"`
	Revision int64  `json:"rv"`    // of the list; -1 means the newest
	Start    string `json:"start"` // the key with which the next page begins
}

// DecodeToken reads a token as kube-apiserver writes it.
func DecodeToken(text string) (Token, error) {
	var t Token
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return t, fmt.Errorf("a continue token: %w", err)
	}
	if err := json.Unmarshal(data, &t); err != nil {
		return t, fmt.Errorf("a continue token: %w", err)
	}
	return t, nil
}

// Encode writes the token as kube-apiserver does.
func (t Token) Encode() string {
	data, err := json.Marshal(t)
	if err != nil {
		return "" // impossible for two strings and a number
	}
	return base64.RawURLEncoding.EncodeToString(data)
}

// isSamePage reports whether two tokens lead to the same page. Only a slash at the beginning of Start may differ: a page that
// kube-apiserver has read from etcd has none.
func isSamePage(a, b string) bool {
	tokenA, errA := DecodeToken(a)
	tokenB, errB := DecodeToken(b)
	if errA != nil || errB != nil {
		return a == b
	}
	tokenA.Start, tokenB.Start = strings.TrimPrefix(tokenA.Start, "/"), strings.TrimPrefix(tokenB.Start, "/")
	return tokenA == tokenB
}

// SameButToken reports whether two lists both have a token, these lead to the same page, and the lists are equal otherwise. The
// tokens may be written differently.
func SameButToken(a, b []byte) bool {
	tokenA, tokenB, isSame := cutTokens(a, b)
	return isSame && tokenA != "" && isSamePage(tokenA, tokenB)
}

// OnlyTokenMissing returns the token of the list b. ok reports whether b has a token, a has none, and they are equal otherwise.
func OnlyTokenMissing(a, b []byte) (token string, ok bool) {
	tokenA, tokenB, isSame := cutTokens(a, b)
	return tokenB, isSame && tokenA == "" && tokenB != ""
}

// cutTokens returns the tokens of two lists. isSame reports whether the lists are equal without the tokens.
func cutTokens(a, b []byte) (tokenA, tokenB string, isSame bool) {
	listA, errA := read(a)
	listB, errB := read(b)
	if errA != nil || errB != nil {
		return "", "", false
	}
	tokenA, tokenB = listA.meta.Continue, listB.meta.Continue
	listA.meta.Continue, listB.meta.Continue = "", ""
	return tokenA, tokenB, reflect.DeepEqual(listA, listB)
}

// Mixes reports whether a list is put together from others. Its first object must have the bytes of the first object of one of
// the others, and so on for each object. Its envelope, which is all that is around the objects, must be that of one of the
// others.
func Mixes(mixed []byte, others ...[]byte) bool {
	var otherParts [][][]byte
	for _, other := range others {
		otherParts = append(otherParts, split(other))
	}
	parts := split(mixed)
	for i, part := range parts {
		hasPart := func(other [][]byte) bool { return len(other) == len(parts) && bytes.Equal(other[i], part) }
		if !slices.ContainsFunc(otherParts, hasPart) {
			return false
		}
	}
	return len(parts) > 0
}

// split returns the parts of a list: first its envelope, and then each object. It returns nil if body is no list.
func split(body []byte) (parts [][]byte) {
	if raw, ok := bytes.CutPrefix(body, protobufMagic); ok {
		return splitProtobuf(raw)
	}
	var list map[string]json.RawMessage
	var items []json.RawMessage
	if json.Unmarshal(body, &list) != nil || json.Unmarshal(list["items"], &items) != nil {
		return nil
	}
	delete(list, "items")
	envelope, _ := json.Marshal(list) // always in the order of keys; what was just decoded can be encoded
	parts = append(parts, envelope)
	for _, item := range items {
		parts = append(parts, item)
	}
	return parts
}

// splitProtobuf is split for a list in protobuf, without its magic.
func splitProtobuf(raw []byte) (parts [][]byte) {
	var envelope runtime.Unknown
	if envelope.Unmarshal(raw) != nil {
		return nil
	}
	fields := envelope.Raw // the metadata and the objects, one after the other
	envelope.Raw = nil
	encoded, _ := envelope.Marshal() // what was just decoded can be encoded
	parts = append(parts, encoded)
	for len(fields) > 0 {
		_, _, n := protowire.ConsumeField(fields)
		if n < 0 {
			return nil
		}
		parts = append(parts, fields[:n])
		fields = fields[n:]
	}
	return parts
}

// ListMeta returns the metadata of a list, in JSON or protobuf.
func ListMeta(body []byte) (metav1.ListMeta, error) {
	l, err := read(body)
	return l.meta, err
}

// list has the parts of a list in which its token can be removed.
type list struct {
	meta metav1.ListMeta
	// envelope is what is around the list in protobuf (runtime.Unknown). In JSON it is empty.
	envelope runtime.Unknown
	// rest is in JSON the body without the token, and in protobuf the list without its metadata.
	rest []byte
}

// protobufMagic is the prefix of a body in Kubernetes' protobuf.
var protobufMagic = []byte("k8s\x00")

// read reads a list in JSON or protobuf.
func read(body []byte) (list, error) {
	if raw, ok := bytes.CutPrefix(body, protobufMagic); ok {
		return readProtobuf(raw)
	}
	var parsed struct {
		Metadata metav1.ListMeta `json:"metadata"`
	}
	if err := json.Unmarshal(body, &parsed); err != nil {
		return list{}, fmt.Errorf("a list: %w", err)
	}
	l := list{meta: parsed.Metadata, rest: body}
	token := l.meta.Continue
	if token == "" {
		return l, nil
	}
	// The rest is what a last page has. For a built-in type that page has no field continue, so the field is removed, from
	// compact or from indented JSON. For a custom resource the field is empty.
	for _, field := range []string{`,"continue":"` + token + `"`, ",\n    \"continue\": \"" + token + `"`} {
		l.rest = bytes.Replace(body, []byte(field), nil, 1)
		if len(l.rest) < len(body) {
			return l, nil
		}
	}
	l.rest = bytes.Replace(body, []byte(`"`+token+`"`), []byte(`""`), 1)
	return l, nil
}

// readProtobuf reads a list in an envelope. The metadata are the first field of every list, except for a
// PartialObjectMetadataList of meta.k8s.io/v1beta1, where they are the second.
func readProtobuf(envelope []byte) (l list, err error) {
	if err := l.envelope.Unmarshal(envelope); err != nil {
		return l, fmt.Errorf("a protobuf envelope: %w", err)
	}
	l.rest = l.envelope.Raw
	l.envelope.Raw = nil
	hasMetadataSecond := l.envelope.APIVersion == "meta.k8s.io/v1beta1" && l.envelope.Kind == "PartialObjectMetadataList"
	if hasMetadataSecond {
		var old metav1beta1.PartialObjectMetadataList
		err = old.Unmarshal(l.rest)
		l.meta = old.ListMeta
	} else {
		var current metav1.PartialObjectMetadataList // its metadata are the first field, as in any other list
		err = current.Unmarshal(l.rest)
		l.meta = current.ListMeta
	}
	if err != nil {
		return l, fmt.Errorf("the protobuf of a list: %w", err)
	}
	meta, err := l.meta.Marshal()
	l.rest = bytes.Replace(l.rest, protowire.AppendBytes(nil, meta), nil, 1)
	return l, err
}
