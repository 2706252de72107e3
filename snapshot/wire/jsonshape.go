package wire

import (
	"bytes"
	"encoding/json"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// separator implements Encoding.
func (jsonEncoding) separator() string { return "," }

// appendItemHead implements Encoding. A JSON item has no head: the caller writes the comma.
func (jsonEncoding) appendItemHead(dst []byte, _ int) []byte { return dst }

// sortedList is a list of custom resources. kube-apiserver encodes it from maps, so its members are in the order of their names.
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

// frame implements Encoding. It encodes a list without items, as kube-apiserver does, and cuts it at the items. JSON does not
// need their size.
func (jsonEncoding) frame(e *Envelope, meta ListMeta, n, _ int) (head, tail []byte) {
	encodable := meta.encodable()
	var list any = metav1.List{TypeMeta: metav1.TypeMeta{Kind: e.kind, APIVersion: e.APIVersion}, ListMeta: encodable}
	if e.sorted {
		metadata := sortedListMeta{
			Continue: meta.Continue, Remaining: meta.Remaining, ResourceVersion: encodable.ResourceVersion,
		}
		list = sortedList{APIVersion: e.APIVersion, Kind: e.kind, Metadata: metadata}
	}
	text, _ := json.Marshal(list) // Strings and numbers can always be encoded.
	opening, closing := e.EmptyItems, ""
	if n > 0 {
		opening, closing = "[", "]"
	}
	const items = `"items":`
	head, tail, _ = bytes.Cut(text, []byte(items+"null"))
	return slices.Concat(head, []byte(items+opening)), slices.Concat([]byte(closing), tail, []byte("\n"))
}

// The parts of an event around its type and its object: {"type":"ADDED","object":{…}} and a line break.
const (
	jsonEventType   = `{"type":"`
	jsonEventObject = `","object":`
	jsonEventEnd    = "}\n"
)

// appendEventHead implements Encoding. If form has a lead (members that only the event's object has), the head ends inside the
// object, after the lead: {"type":"ADDED","object":{"kind":"Pod",… So the caller must skip the item's own brace. JSON does not
// need the item's size.
func (jsonEncoding) appendEventHead(dst []byte, eventType string, form ItemForm, _ int) (out []byte, skip int) {
	dst = append(dst, jsonEventType...)
	dst = append(dst, eventType...)
	dst = append(dst, jsonEventObject...)
	if form.lead == "" {
		return dst, 0
	}
	const brace = "{"
	dst = append(dst, brace...)
	return append(dst, form.lead...), len(brace)
}

// eventEnd implements Encoding.
func (jsonEncoding) eventEnd() string { return jsonEventEnd }

// isReproducible reports whether AppendEvent would write ev with the same bytes as record, from which ev was parsed. ev.Object
// begins with the lead already.
func (jsonEncoding) isReproducible(record []byte, ev Event) bool {
	head := jsonEventType + ev.Type + jsonEventObject
	return len(record) == len(head)+len(ev.Object)+len(jsonEventEnd) &&
		bytes.HasPrefix(record, []byte(head)) && bytes.HasSuffix(record, []byte(jsonEventEnd))
}
