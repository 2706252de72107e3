package wire

import (
	"bytes"
	"strconv"
)

// kube-apiserver writes lists in JSON in two shapes:
//
//	structShape, for built-in types    {"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[…]}
//	sortedShape, for custom resources  {"apiVersion":"x/v1","items":[…],"kind":"XList","metadata":{"continue":"",…}}
//
// For printable ASCII without <, > and &, strconv.AppendQuote quotes as kube-apiserver does. LearnEnvelope refuses a list in
// which any other character of its kind, version, token or selector comes out differently.
type (
	structShape struct{ jsonItems }
	sortedShape struct{ jsonItems }
)

// jsonItems has the methods that both shapes share.
type jsonItems struct{}

// separator implements shape.
func (jsonItems) separator() string { return "," }

// appendItemHead implements shape. A JSON item has no head: the caller writes the comma.
func (jsonItems) appendItemHead(dst []byte, _ int) []byte { return dst }

// shapes implements Encoding.
func (jsonEncoding) shapes() []shape { return []shape{structShape{}, sortedShape{}} }

// appendHead implements shape. n is the number of items; JSON does not need their size.
func (structShape) appendHead(dst []byte, e *Envelope, meta ListMeta, n, _ int) []byte {
	dst = appendQuoted(dst, `{"kind":`, e.kind)
	dst = appendQuoted(dst, `,"apiVersion":`, e.APIVersion)
	dst = append(dst, `,"metadata":{"resourceVersion":"`...)
	dst = strconv.AppendUint(dst, meta.Revision, 10)
	dst = append(dst, '"')
	if meta.Continue != "" {
		dst = appendQuoted(dst, `,"continue":`, meta.Continue)
	}
	if meta.Remaining != 0 {
		dst = append(dst, `,"remainingItemCount":`...)
		dst = strconv.AppendInt(dst, meta.Remaining, 10)
	}
	if meta.Shards != "" {
		dst = appendQuoted(dst, `,"shardInfo":{"selector":`, meta.Shards)
		dst = append(dst, '}')
	}
	return openItems(append(dst, '}'), e, n)
}

// appendTail implements shape.
func (structShape) appendTail(dst []byte, _ *Envelope, _ ListMeta, n int) []byte {
	if n > 0 {
		dst = append(dst, ']')
	}
	return append(dst, "}\n"...)
}

// appendHead implements shape.
func (sortedShape) appendHead(dst []byte, e *Envelope, _ ListMeta, n, _ int) []byte {
	dst = appendQuoted(dst, `{"apiVersion":`, e.APIVersion)
	return openItems(dst, e, n)
}

// appendTail implements shape. It writes no shardInfo, so LearnEnvelope refuses a list of custom resources with shardInfo.
func (sortedShape) appendTail(dst []byte, e *Envelope, meta ListMeta, n int) []byte {
	if n > 0 {
		dst = append(dst, ']')
	}
	dst = appendQuoted(dst, `,"kind":`, e.kind)
	dst = appendQuoted(dst, `,"metadata":{"continue":`, meta.Continue)
	if meta.Remaining != 0 {
		dst = append(dst, `,"remainingItemCount":`...)
		dst = strconv.AppendInt(dst, meta.Remaining, 10)
	}
	dst = append(dst, `,"resourceVersion":"`...)
	dst = strconv.AppendUint(dst, meta.Revision, 10)
	return append(dst, "\"}}\n"...)
}

// appendQuoted appends prefix, which ends with a key, such as `,"kind":`, and a value in quotation marks.
func appendQuoted(dst []byte, prefix, value string) []byte {
	return strconv.AppendQuote(append(dst, prefix...), value)
}

// openItems appends the key "items" and the opening bracket before the first of n items. If n is 0, it appends the key and the
// whole value.
func openItems(dst []byte, e *Envelope, n int) []byte {
	dst = append(dst, `,"items":`...)
	if n == 0 {
		return append(dst, e.EmptyItems...)
	}
	return append(dst, '[')
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
