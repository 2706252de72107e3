package gzip

// The checksum of a gzip member covers all its bytes, but each segment has a checksum of its own. crcJoin joins checksums,
// and does not read the bytes again. For example, the checksum of "abcde" is that of "abc", multiplied by x¹⁶ for the two
// bytes that follow, xor that of "de".
//
// A CRC-32 of gzip (IEEE 802.3) is a polynomial with the coefficients 0 and 1, modulo the polynomial crcPolynomial. The
// highest bit of the checksum is the coefficient of the lowest power, x⁰. Each byte that follows a text multiplies the
// polynomial of the text by x⁸.
const (
	crcPolynomial = 0xedb88320 // the modulus, without x³²
	crcOne        = 1 << 31    // the polynomial 1
)

// crcProduct returns a·b modulo crcPolynomial.
func crcProduct(a, b uint32) uint32 {
	product := uint32(0)
	for ; a != 0; a <<= 1 {
		if a&crcOne != 0 {
			product ^= b
		}
		// The next bit of a belongs to the next higher power, so multiply b by x.
		carry := b & 1
		b >>= 1
		if carry != 0 {
			b ^= crcPolynomial
		}
	}
	return product
}

// crcShift returns x to the power of 8n. If n bytes follow a text, they multiply the checksum of the text by crcShift(n).
func crcShift(n int64) uint32 {
	power := uint32(crcOne >> 8) // x⁸, then x¹⁶, x³² and so on
	shift := uint32(crcOne)
	for ; n > 0; n >>= 1 {
		if n&1 != 0 {
			shift = crcProduct(power, shift)
		}
		power = crcProduct(power, power)
	}
	return shift
}

// crcJoin returns the checksum of two joined texts from the checksum of each. shift is the crcShift of the second text's
// length. (The calculation of a CRC-32 begins and ends with an inversion. These cancel out here, as in zlib's crc32_combine.)
func crcJoin(first, second, shift uint32) uint32 { return crcProduct(shift, first) ^ second }
