package wire

import (
	"bytes"
	"encoding/json"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// separator implements Encoding.
func (jsonEncoding) separator() string { return "," }

// appendItemTag implements Encoding.
func (jsonEncoding) appendItemTag(dst []byte, _ int) []byte { return dst }

// sortedList is a list of custom resources. kube-apiserver encodes such a list from maps, so the members are sorted by name.
type sortedList struct {
	APIVersion string         `json:"apiVersion"`
	Items      any            `json:"items"`
	Kind       string         `json:"kind"`
	Metadata   sortedListMeta `json:"metadata"`
}

// sortedListMeta has no shardInfo, so LearnEnvelope refuses a list of custom resources with shardInfo.
type sortedListMeta struct {
	Continue        string `json:"continue"`
	Remaining       int64  `json:"remainingItemCount,omitempty"`
	ResourceVersion string `json:"resourceVersion"`
}

// listFrame implements Encoding. It encodes the list without its items, so the text has "items":null. It cuts the text at null.
// Then the head gets the opening bracket, and the tail the closing one. For an empty list, the head gets e.EmptyItems instead.
// JSON does not need the size of the items. For example:
//
//	text             {"kind":"PodList","apiVersion":"v1","metadata":{…},"items":null}
//	head, count > 0  {"kind":"PodList","apiVersion":"v1","metadata":{…},"items":[
//	tail, count > 0  ]}⏎
//	head, count = 0  {"kind":"PodList","apiVersion":"v1","metadata":{…},"items":[]
//	tail, count = 0  }⏎
func (jsonEncoding) listFrame(e *Envelope, meta ListMeta, count, _ int) (head, tail []byte) {
	listMeta := meta.toAPIMachinery()
	var list any = metav1.List{TypeMeta: metav1.TypeMeta{Kind: e.kind, APIVersion: e.APIVersion}, ListMeta: listMeta}
	if e.sorted {
		sortedMeta := sortedListMeta{Continue: meta.Continue, Remaining: meta.Remaining, ResourceVersion: listMeta.ResourceVersion}
		list = sortedList{APIVersion: e.APIVersion, Kind: e.kind, Metadata: sortedMeta}
	}
	text, _ := json.Marshal(list) // Strings and numbers can always be encoded.
	opening, closing := e.EmptyItems, ""
	if count > 0 {
		opening, closing = "[", "]"
	}
	const key = `"items":`
	beforeItems, afterItems, _ := bytes.Cut(text, []byte(key+"null"))
	head = slices.Concat(beforeItems, []byte(key+opening))
	tail = slices.Concat([]byte(closing), afterItems, []byte("\n"))
	return head, tail
}

// The JSON of an event around its type and its object:
//
//	jsonEventType  type   jsonEventObject  object  jsonEventEnd
//	{"type":"      ADDED  ","object":      {…}     }⏎
const (
	jsonEventType   = `{"type":"`
	jsonEventObject = `","object":`
	jsonEventEnd    = "}\n"
)

// appendEventHead implements Encoding. If form has eventMembers, the head ends with an opening brace and these members, so the
// caller must skip the opening brace of the item:
//
//	{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1",
//
// JSON does not need the item's size.
func (jsonEncoding) appendEventHead(dst []byte, eventType string, form ItemForm, _ int) (out []byte, skip int) {
	dst = append(dst, jsonEventType...)
	dst = append(dst, eventType...)
	dst = append(dst, jsonEventObject...)
	if form.eventMembers == "" {
		return dst, 0
	}
	const brace = "{"
	dst = append(dst, brace...)
	return append(dst, form.eventMembers...), len(brace)
}

// eventEnd implements Encoding.
func (jsonEncoding) eventEnd() string { return jsonEventEnd }

// isReproducible reports whether AppendEvent would write ev with the bytes of record, from which ev was parsed. Here the head
// ends before the object, since ev.Object has the members of ItemForm.eventMembers.
func (jsonEncoding) isReproducible(record []byte, ev Event) bool {
	head := jsonEventType + ev.Type + jsonEventObject
	return len(record) == len(head)+len(ev.Object)+len(jsonEventEnd) &&
		bytes.HasPrefix(record, []byte(head)) && bytes.HasSuffix(record, []byte(jsonEventEnd))
}
