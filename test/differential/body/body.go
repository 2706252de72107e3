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
	Revision int64  `json:"rv"`
	Start    string `json:"start"`
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

// sameToken reports whether two tokens lead to the same page. Only a slash at the beginning of start may differ: a page that
// kube-apiserver has read from etcd has none.
func sameToken(a, b string) bool {
	ta, errA := DecodeToken(a)
	tb, errB := DecodeToken(b)
	if errA != nil || errB != nil {
		return a == b
	}
	ta.Start, tb.Start = strings.TrimPrefix(ta.Start, "/"), strings.TrimPrefix(tb.Start, "/")
	return ta == tb
}

// SameButToken reports whether two lists have the same tokens, though they may be written differently, and are equal otherwise.
func SameButToken(a, b []byte) bool {
	ta, tb, ok := tokensOfSame(a, b)
	return ok && ta != "" && sameToken(ta, tb)
}

// OnlyTokenMissing returns the token of the list b. ok reports whether a lacks that token, and is equal to b otherwise.
func OnlyTokenMissing(a, b []byte) (token string, ok bool) {
	ta, tb, ok := tokensOfSame(a, b)
	return tb, ok && ta == "" && tb != ""
}

// tokensOfSame returns the tokens of two lists. same reports whether the lists are equal without the tokens.
func tokensOfSame(a, b []byte) (ta, tb string, same bool) {
	la, errA := read(a)
	lb, errB := read(b)
	if errA != nil || errB != nil {
		return "", "", false
	}
	ta, tb = la.meta.Continue, lb.meta.Continue
	la.meta.Continue, lb.meta.Continue = "", ""
	return ta, tb, reflect.DeepEqual(la, lb)
}

// Mixes reports whether each object of a list is written as at the same place of one of the others, and what is around the objects,
// too.
func Mixes(mixed []byte, others ...[]byte) bool {
	var otherParts [][][]byte
	for _, other := range others {
		otherParts = append(otherParts, split(other))
	}
	parts := split(mixed)
	for i, part := range parts {
		isSame := func(other [][]byte) bool { return len(other) == len(parts) && bytes.Equal(other[i], part) }
		if !slices.ContainsFunc(otherParts, isSame) {
			return false
		}
	}
	return len(parts) > 0
}

// split returns the objects of a list, and what is around them, as separate parts; nothing for what is no list.
func split(body []byte) (parts [][]byte) {
	raw, isProtobuf := bytes.CutPrefix(body, protobufMagic)
	if !isProtobuf {
		var list map[string]json.RawMessage
		var items []json.RawMessage
		if json.Unmarshal(body, &list) != nil || json.Unmarshal(list["items"], &items) != nil {
			return nil
		}
		delete(list, "items")
		around, _ := json.Marshal(list) // the maps of one list are written in one order
		parts = append(parts, around)
		for _, item := range items {
			parts = append(parts, item)
		}
		return parts
	}
	var envelope runtime.Unknown
	if envelope.Unmarshal(raw) != nil {
		return nil
	}
	rest := envelope.Raw // the metadata and the objects are fields, one after the other
	for len(rest) > 0 {
		_, _, n := protowire.ConsumeField(rest)
		if n < 0 {
			return nil
		}
		parts = append(parts, rest[:n])
		rest = rest[n:]
	}
	envelope.Raw = nil
	around, _ := envelope.Marshal()
	return append(parts, around)
}

// ListMeta returns the metadata of a list, in JSON or protobuf.
func ListMeta(body []byte) (metav1.ListMeta, error) {
	l, err := read(body)
	return l.meta, err
}

// list is a list in parts.
type list struct {
	meta metav1.ListMeta
	// envelope is the envelope of protobuf, without the list in it.
	envelope runtime.Unknown
	// rest is the text without the token in JSON, and the list without the metadata in protobuf.
	rest []byte
}

// protobufMagic is the prefix of a body in Kubernetes' protobuf.
var protobufMagic = []byte("k8s\x00")

// read reads a list in JSON or protobuf.
func read(body []byte) (list, error) {
	if raw, ok := bytes.CutPrefix(body, protobufMagic); ok {
		return readProtobuf(raw)
	}
	var o struct {
		Metadata metav1.ListMeta `json:"metadata"`
	}
	if err := json.Unmarshal(body, &o); err != nil {
		return list{}, fmt.Errorf("a list: %w", err)
	}
	l, meta := list{meta: o.Metadata, rest: body}, o.Metadata
	if meta.Continue == "" {
		return l, nil
	}
	// A last page of a built-in type has no field continue, and one of a custom type has an empty one.
	for _, text := range []string{`,"continue":"` + meta.Continue + `"`, ",\n    \"continue\": \"" + meta.Continue + `"`} {
		l.rest = bytes.Replace(body, []byte(text), nil, 1)
		if len(l.rest) < len(body) {
			return l, nil
		}
	}
	l.rest = bytes.Replace(body, []byte(`"`+meta.Continue+`"`), []byte(`""`), 1)
	return l, nil
}

// readProtobuf reads a list in an envelope. The metadata are the first field of every list, except for a
// PartialObjectMetadataList of meta.k8s.io/v1beta1, where they are the second.
func readProtobuf(envelope []byte) (l list, err error) {
	if err := l.envelope.Unmarshal(envelope); err != nil {
		return l, fmt.Errorf("a protobuf envelope: %w", err)
	}
	l.rest, l.envelope.Raw = l.envelope.Raw, nil
	var current metav1.PartialObjectMetadataList
	var old metav1beta1.PartialObjectMetadataList
	if l.envelope.APIVersion == "meta.k8s.io/v1beta1" && l.envelope.Kind == "PartialObjectMetadataList" {
		err = old.Unmarshal(l.rest)
		current.ListMeta = old.ListMeta
	} else {
		err = current.Unmarshal(l.rest)
	}
	if err != nil {
		return l, fmt.Errorf("the protobuf of a list: %w", err)
	}
	l.meta = current.ListMeta
	text, err := l.meta.Marshal()
	l.rest = bytes.Replace(l.rest, protowire.AppendBytes(nil, text), nil, 1)
	return l, err
}
