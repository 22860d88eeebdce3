/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests from people who mean harm, and neighbours of those that are fine: raw bytes and the status that
 * answers them. 200 stands for "accepted": framing and head are in order, whatever the route says then. A
 * message may be followed by a second one in the same bytes; the status is that of the first one refused.
 * Every entry that is refused can be refused without waiting for more bytes. For tests only.
 */
#ifndef ROLTER_TESTS_HTTP_HOSTILE_H
#define ROLTER_TESTS_HTTP_HOSTILE_H

#include "base/span.h"

struct hostile {
    const char *name;
    struct span raw;
    int status; /* 400, 413, 431, 501, 505, or 200 */
};

#define HOSTILE_GET     "GET /healthz HTTP/1.1\r\nHost: a\r\n"
#define HOSTILE_POST    "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\n"
#define HOSTILE_CHUNKED HOSTILE_POST "Transfer-Encoding: chunked\r\n\r\n"
#define HOSTILE_NEXT    "GET /healthz HTTP/1.1\r\nHost: b\r\n\r\n"

#define HOSTILE_X4(s)     s s s s
#define HOSTILE_X16(s)    HOSTILE_X4(HOSTILE_X4(s))
#define HOSTILE_X256(s)   HOSTILE_X16(HOSTILE_X16(s))
#define HOSTILE_11_FIELDS "x-a: 1\r\nx-b: 2\r\nx-c: 3\r\n" HOSTILE_X4("x-d: 4\r\nx-e: 5\r\n")
#define HOSTILE_99_FIELDS HOSTILE_X4(HOSTILE_11_FIELDS HOSTILE_11_FIELDS) HOSTILE_11_FIELDS

/* A head of more than 256 KiB, and values of 4 KiB and 64 KiB. */
#define HOSTILE_4K  HOSTILE_X256("0123456789abcdef")
#define HOSTILE_64K HOSTILE_X16(HOSTILE_4K)

static const struct hostile hostile_requests[] = {
    /* What packaged parsers let through. */
    {"bare LF between fields", SPAN(HOSTILE_GET "A: b\nC: d\r\n\r\n"), 400},
    {"bare LF behind the request line", SPAN("GET /healthz HTTP/1.1\nHost: a\r\n\r\n"), 400},
    {"bare LF everywhere", SPAN("GET /healthz HTTP/1.1\nHost: a\n\n"), 400},
    {"bare LF as empty line", SPAN(HOSTILE_GET "\n"), 400},
    {"LF CR", SPAN("GET /healthz HTTP/1.1\n\rHost: a\n\r\n\r"), 400},
    {"no version, bare LF, body", SPAN("POST /v1/chat/completions\nContent-Length: 2\n\n{}"), 400},
    {"no version", SPAN("GET /healthz\r\n\r\n"), 400},
    {"bare CR inside a value", SPAN(HOSTILE_GET "A: b\rC: d\r\n\r\n"), 400},
    {"bare CR before CR LF", SPAN(HOSTILE_GET "A: b\r\r\n\r\n"), 400},
    {"bare CR in the request line", SPAN("GET /healthz\rHTTP/1.1\r\nHost: a\r\n\r\n"), 400},
    {"both lengths", SPAN(HOSTILE_POST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
     400},
    {"both lengths, coding first",
     SPAN(HOSTILE_POST "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"), 400},
    {"both lengths, unknown coding",
     SPAN(HOSTILE_POST "Transfer-Encoding: xchunked\r\nContent-Length: 5\r\n\r\n"), 400},
    {"two equal lengths", SPAN(HOSTILE_POST "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}"), 400},
    {"two different lengths", SPAN(HOSTILE_POST "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}"), 400},
    {"two lengths in different case", SPAN(HOSTILE_POST "Content-Length: 2\r\ncontent-LENGTH: 2\r\n\r\n{}"),
     400},
    {"length with plus", SPAN(HOSTILE_POST "Content-Length: +2\r\n\r\n{}"), 400},
    {"length with minus", SPAN(HOSTILE_POST "Content-Length: -2\r\n\r\n{}"), 400},
    {"length as list", SPAN(HOSTILE_POST "Content-Length: 2, 2\r\n\r\n{}"), 400},
    {"length in hexadecimal", SPAN(HOSTILE_POST "Content-Length: 0x2\r\n\r\n{}"), 400},
    {"length over 2^64", SPAN(HOSTILE_POST "Content-Length: 18446744073709551618\r\n\r\n{}"), 400},
    {"length of 2^64 - 1", SPAN(HOSTILE_POST "Content-Length: 18446744073709551615\r\n\r\n{}"), 400},
    {"length with blank inside", SPAN(HOSTILE_POST "Content-Length: 1 2\r\n\r\n{}"), 400},
    {"length with point", SPAN(HOSTILE_POST "Content-Length: 2.0\r\n\r\n{}"), 400},
    {"length empty", SPAN(HOSTILE_POST "Content-Length:\r\n\r\n"), 400},
    {"length with vertical tab", SPAN(HOSTILE_POST "Content-Length: \v2\r\n\r\n{}"), 400},
    {"space before the colon", SPAN(HOSTILE_POST "Content-Length : 2\r\n\r\n{}"), 400},
    {"tab before the colon", SPAN(HOSTILE_POST "Transfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n"), 400},
    {"folded line", SPAN(HOSTILE_GET "A: b\r\n c\r\n\r\n"), 400},
    {"folded line with tab", SPAN(HOSTILE_GET "A: b\r\n\tc\r\n\r\n"), 400},
    {"folded coding", SPAN(HOSTILE_POST "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n"), 400},
    {"folded empty line", SPAN(HOSTILE_GET "A: b\r\n \r\n\r\n"), 400},
    {"coding in HTTP/1.0",
     SPAN("POST /v1/chat/completions HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
     400},
    {"chunked, identity", SPAN(HOSTILE_POST "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"), 501},
    {"xchunked", SPAN(HOSTILE_POST "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"), 501},
    {"no Host", SPAN("GET /healthz HTTP/1.1\r\nA: b\r\n\r\n"), 400},
    {"two Hosts", SPAN(HOSTILE_GET "Host: b\r\n\r\n"), 400},
    {"two equal Hosts", SPAN(HOSTILE_GET "host: a\r\n\r\n"), 400},
    {"HTTP/1.9", SPAN("GET /healthz HTTP/1.9\r\nHost: a\r\n\r\n"), 505},
    {"leading space in the first field", SPAN("GET /healthz HTTP/1.1\r\n Host: a\r\n\r\n"), 400},

    /* Codings. */
    {"gzip, chunked", SPAN(HOSTILE_POST "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"), 501},
    {"identity", SPAN(HOSTILE_POST "Transfer-Encoding: identity\r\n\r\n"), 501},
    {"chunked twice", SPAN(HOSTILE_POST "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n"), 400},
    {"chunked in two fields",
     SPAN(HOSTILE_POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400},
    {"chunked, then another field",
     SPAN(HOSTILE_POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n"), 501},
    {"coding empty", SPAN(HOSTILE_POST "Transfer-Encoding:\r\n\r\n"), 400},
    {"coding with list comma", SPAN(HOSTILE_POST "Transfer-Encoding: ,chunked\r\n\r\n0\r\n\r\n"), 400},
    {"coding in quotes", SPAN(HOSTILE_POST "Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n"), 501},
    {"coding with parameter", SPAN(HOSTILE_POST "Transfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n"), 501},
    {"coding behind a form feed", SPAN(HOSTILE_POST "Transfer-Encoding: \fchunked\r\n\r\n0\r\n\r\n"), 400},
    {"coding with a byte behind it", SPAN(HOSTILE_POST "Transfer-Encoding: chunked\xa0\r\n\r\n0\r\n\r\n"),
     501},
    {"coding in mixed case is fine", SPAN(HOSTILE_POST "tRANSFER-eNCODING: Chunked\r\n\r\n0\r\n\r\n"), 200},

    /* Request line. */
    {"empty lines before it", SPAN("\r\n\r\n" HOSTILE_GET "\r\n"), 400},
    {"space before it", SPAN(" " HOSTILE_GET "\r\n"), 400},
    {"two spaces behind the method", SPAN("GET  /healthz HTTP/1.1\r\nHost: a\r\n\r\n"), 400},
    {"two spaces before the version", SPAN("GET /healthz  HTTP/1.1\r\nHost: a\r\n\r\n"), 400},
    {"space behind the version", SPAN("GET /healthz HTTP/1.1 \r\nHost: a\r\n\r\n"), 400},
    {"tab as separator", SPAN("GET\t/healthz\tHTTP/1.1\r\nHost: a\r\n\r\n"), 400},
    {"space in the target", SPAN("GET /health z HTTP/1.1\r\nHost: a\r\n\r\n"), 400},
    {"two requests in one line", SPAN("GET /healthz HTTP/1.1 GET /b HTTP/1.1\r\nHost: a\r\n\r\n"), 400},
    {"NUL in the target", SPAN("GET /health\0z HTTP/1.1\r\nHost: a\r\n\r\n"), 400},
    {"DEL in the target", SPAN("GET /health\x7fz HTTP/1.1\r\nHost: a\r\n\r\n"), 400},
    {"eight-bit byte in the target", SPAN("GET /health\xc3\xa4 HTTP/1.1\r\nHost: a\r\n\r\n"), 400},
    {"fragment in the target", SPAN("GET /healthz#a HTTP/1.1\r\nHost: a\r\n\r\n"), 400},
    {"relative target", SPAN("GET healthz HTTP/1.1\r\nHost: a\r\n\r\n"), 400},
    {"asterisk with GET", SPAN("GET * HTTP/1.1\r\nHost: a\r\n\r\n"), 400},
    {"authority as target", SPAN("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n"), 400},
    {"method with a colon", SPAN("GE:T /healthz HTTP/1.1\r\nHost: a\r\n\r\n"), 400},
    {"method with a NUL", SPAN("GE\0T /healthz HTTP/1.1\r\nHost: a\r\n\r\n"), 400},
    {"lower-case protocol", SPAN("GET /healthz http/1.1\r\nHost: a\r\n\r\n"), 400},
    {"another protocol", SPAN("GET /healthz ICE/1.1\r\nHost: a\r\n\r\n"), 400},
    {"version with two digits", SPAN("GET /healthz HTTP/1.10\r\nHost: a\r\n\r\n"), 400},
    {"version with leading zero", SPAN("GET /healthz HTTP/01.1\r\nHost: a\r\n\r\n"), 400},
    {"version without minor", SPAN("GET /healthz HTTP/1\r\nHost: a\r\n\r\n"), 400},
    {"version 0.9", SPAN("GET /healthz HTTP/0.9\r\nHost: a\r\n\r\n"), 505},
    {"version 2.0", SPAN("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 505},
    {"TLS on a plain port", SPAN("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"), 400},
    {"absolute target for another host", SPAN("GET http://b/healthz HTTP/1.1\r\nHost: a\r\n\r\n"), 400},
    {"absolute target with a user", SPAN("GET http://u@a/healthz HTTP/1.1\r\nHost: a\r\n\r\n"), 400},
    {"absolute target without a host", SPAN("GET http:///healthz HTTP/1.1\r\nHost: a\r\n\r\n"), 400},
    {"absolute target of another scheme", SPAN("GET ftp://a/healthz HTTP/1.1\r\nHost: a\r\n\r\n"), 400},

    /* Fields. */
    {"no colon", SPAN(HOSTILE_GET "Abc\r\n\r\n"), 400},
    {"empty name", SPAN(HOSTILE_GET ": b\r\n\r\n"), 400},
    {"space in a name", SPAN(HOSTILE_GET "A b: c\r\n\r\n"), 400},
    {"NUL in a name", SPAN(HOSTILE_GET "A\0b: c\r\n\r\n"), 400},
    {"eight-bit byte in a name", SPAN(HOSTILE_GET "Content-Length\xa0: c\r\n\r\n"), 400},
    {"slash in a name", SPAN(HOSTILE_GET "A/b: c\r\n\r\n"), 400},
    {"brackets in a name", SPAN(HOSTILE_GET "[a]: c\r\n\r\n"), 400},
    {"NUL in a value", SPAN(HOSTILE_GET "A: b\0c\r\n\r\n"), 400},
    {"escape in a value", SPAN(HOSTILE_GET "A: \x1b[31m\r\n\r\n"), 400},
    {"DEL in a value", SPAN(HOSTILE_GET "A: b\x7f\r\n\r\n"), 400},
    {"backspace at the end of a value", SPAN(HOSTILE_GET "A: 0123456789abcdef0123456789abc\b\r\n\r\n"), 400},
    {"request line among the fields", SPAN(HOSTILE_GET "GET /b HTTP/1.1\r\nHost: b\r\n\r\n"), 400},

    /* Host. */
    {"empty Host", SPAN("GET /healthz HTTP/1.1\r\nHost:\r\n\r\n"), 400},
    {"list of Hosts", SPAN("GET /healthz HTTP/1.1\r\nHost: a, b\r\n\r\n"), 400},
    {"Host with a path", SPAN("GET /healthz HTTP/1.1\r\nHost: a/b\r\n\r\n"), 400},
    {"Host with a user", SPAN("GET /healthz HTTP/1.1\r\nHost: u@a\r\n\r\n"), 400},
    {"Host with a wrong port", SPAN("GET /healthz HTTP/1.1\r\nHost: a:8o\r\n\r\n"), 400},
    {"Host with two ports", SPAN("GET /healthz HTTP/1.1\r\nHost: a:80:80\r\n\r\n"), 400},
    {"Host with an open bracket", SPAN("GET /healthz HTTP/1.1\r\nHost: [::1\r\n\r\n"), 400},
    {"two Hosts in HTTP/1.0", SPAN("GET /healthz HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n"), 400},

    /* Sizes. */
    {"101 fields", SPAN(HOSTILE_GET HOSTILE_99_FIELDS "y: z\r\n\r\n"), 431},
    {"second Host as field 102", SPAN(HOSTILE_GET HOSTILE_99_FIELDS "y: z\r\nHost: b\r\n\r\n"), 431},
    {"head too large in one field", SPAN(HOSTILE_GET "A: " HOSTILE_X4(HOSTILE_64K) "\r\n\r\n"), 431},
    {"head too large, never ends", SPAN(HOSTILE_GET "A: " HOSTILE_X4(HOSTILE_64K)), 431},
    {"head too large in the target", SPAN("GET /" HOSTILE_X4(HOSTILE_64K) " HTTP/1.1\r\nHost: a\r\n\r\n"),
     431},
    {"head too large in a name", SPAN(HOSTILE_GET HOSTILE_X4(HOSTILE_64K) ": b\r\n\r\n"), 431},
    {"body of 2^63 - 1 bytes", SPAN(HOSTILE_POST "Content-Length: 9223372036854775807\r\n\r\n{}"), 413},

    /* Chunks. */
    {"chunk size ended by bare LF", SPAN(HOSTILE_CHUNKED "2\n{}\r\n0\r\n\r\n"), 400},
    {"chunk size ended by CR and a byte", SPAN(HOSTILE_CHUNKED "2\rX{}\r\n0\r\n\r\n"), 400},
    {"chunk extension ended by bare LF", SPAN(HOSTILE_CHUNKED "2;a\n{}\r\n0\r\n\r\n"), 400},
    {"chunk extension with bare CR", SPAN(HOSTILE_CHUNKED "2;a\rb\r\n{}\r\n0\r\n\r\n"), 400},
    {"chunk extension with NUL", SPAN(HOSTILE_CHUNKED "2;a\0\r\n{}\r\n0\r\n\r\n"), 400},
    {"chunk extension of 4 KiB", SPAN(HOSTILE_CHUNKED "2;" HOSTILE_4K "\r\n{}\r\n0\r\n\r\n"), 400},
    {"chunk size empty", SPAN(HOSTILE_CHUNKED "\r\n{}\r\n0\r\n\r\n"), 400},
    {"chunk size missing before an extension", SPAN(HOSTILE_CHUNKED ";a\r\n{}\r\n0\r\n\r\n"), 400},
    {"chunk size with 0x", SPAN(HOSTILE_CHUNKED "0x2\r\n{}\r\n0\r\n\r\n"), 400},
    {"chunk size with plus", SPAN(HOSTILE_CHUNKED "+2\r\n{}\r\n0\r\n\r\n"), 400},
    {"chunk size with minus", SPAN(HOSTILE_CHUNKED "-2\r\n{}\r\n0\r\n\r\n"), 400},
    {"chunk size with space before", SPAN(HOSTILE_CHUNKED " 2\r\n{}\r\n0\r\n\r\n"), 400},
    {"chunk size with space behind", SPAN(HOSTILE_CHUNKED "2 \r\n{}\r\n0\r\n\r\n"), 400},
    {"chunk size with underscore", SPAN(HOSTILE_CHUNKED "1_0\r\n{}\r\n0\r\n\r\n"), 400},
    {"chunk size not hexadecimal", SPAN(HOSTILE_CHUNKED "g\r\n{}\r\n0\r\n\r\n"), 400},
    {"chunk size of 17 digits", SPAN(HOSTILE_CHUNKED "00000000000000002\r\n{}\r\n0\r\n\r\n"), 400},
    {"chunk size over 2^64", SPAN(HOSTILE_CHUNKED "10000000000000002\r\n{}\r\n0\r\n\r\n"), 400},
    {"chunk longer than its size", SPAN(HOSTILE_CHUNKED "1\r\n{}\r\n0\r\n\r\n"), 400},
    {"chunk shorter than its size", SPAN(HOSTILE_CHUNKED "3\r\n{}\r\n0\r\n\r\n"), 400},
    {"chunk ended by bare LF", SPAN(HOSTILE_CHUNKED "2\r\n{}\n0\r\n\r\n"), 400},
    {"chunk not ended", SPAN(HOSTILE_CHUNKED "2\r\n{}0\r\n\r\n"), 400},
    {"next request in place of the last empty line", SPAN(HOSTILE_CHUNKED "2\r\n{}\r\n0\r\n" HOSTILE_NEXT),
     400},
    {"last empty line with bare LF", SPAN(HOSTILE_CHUNKED "2\r\n{}\r\n0\r\n\n"), 400},
    {"last empty line with bare CR", SPAN(HOSTILE_CHUNKED "2\r\n{}\r\n0\r\n\rG"), 400},
    {"trailer without a colon", SPAN(HOSTILE_CHUNKED "2\r\n{}\r\n0\r\nabc\r\n\r\n"), 400},
    {"trailer with bare LF", SPAN(HOSTILE_CHUNKED "2\r\n{}\r\n0\r\na: b\n\r\n"), 400},
    {"trailer folded", SPAN(HOSTILE_CHUNKED "2\r\n{}\r\n0\r\na: b\r\n c\r\n\r\n"), 400},
    {"trailer with NUL", SPAN(HOSTILE_CHUNKED "2\r\n{}\r\n0\r\na: \0\r\n\r\n"), 400},
    {"trailers of 12 KiB",
     SPAN(HOSTILE_CHUNKED "2\r\n{}\r\n0\r\na: " HOSTILE_4K HOSTILE_4K HOSTILE_4K "\r\n\r\n"), 400},

    /* What follows a message is the next one and nothing else. */
    {"body shorter than its length", SPAN(HOSTILE_POST "Content-Length: 1\r\n\r\n{}" HOSTILE_NEXT), 400},
    {"body of a GET without a length", SPAN(HOSTILE_GET "\r\n{}"), 400},
    {"CR LF behind a body", SPAN(HOSTILE_POST "Content-Length: 2\r\n\r\n{}\r\n" HOSTILE_NEXT), 400},
    {"CR LF behind chunks", SPAN(HOSTILE_CHUNKED "2\r\n{}\r\n0\r\n\r\n\r\n" HOSTILE_NEXT), 400},

    /* Odd, but fine. */
    {"plain", SPAN(HOSTILE_NEXT), 200},
    {"HTTP/1.0 without Host", SPAN("GET /healthz HTTP/1.0\r\n\r\n"), 200},
    {"100 fields", SPAN(HOSTILE_GET HOSTILE_99_FIELDS "\r\n"), 200},
    {"value of 64 KiB", SPAN(HOSTILE_GET "A: " HOSTILE_64K "\r\n\r\n"), 200},
    {"no space behind the colon", SPAN("GET /healthz HTTP/1.1\r\nHost:a\r\n\r\n"), 200},
    {"blanks around a value", SPAN("GET /healthz HTTP/1.1\r\nHost: \t a \t \r\n\r\n"), 200},
    {"empty value", SPAN(HOSTILE_GET "A:\r\n\r\n"), 200},
    {"eight-bit bytes in a value", SPAN(HOSTILE_GET "A: \xc3\xa4\xff\r\n\r\n"), 200},
    {"every character of a name", SPAN(HOSTILE_GET "!#$%&'*+-.^_`|~09azAZ: b\r\n\r\n"), 200},
    {"colons in a value", SPAN(HOSTILE_GET "A: b:c::d\r\n\r\n"), 200},
    {"length with leading zeros", SPAN(HOSTILE_POST "Content-Length: 002\r\n\r\n{}" HOSTILE_NEXT), 200},
    {"absolute target", SPAN("GET http://A/healthz HTTP/1.1\r\nHost: a\r\n\r\n"), 200},
    {"IPv6 Host with port", SPAN("GET /healthz HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n"), 200},
    {"chunks, then a request", SPAN(HOSTILE_CHUNKED "2\r\n{}\r\n0\r\n\r\n" HOSTILE_NEXT), 200},
    {"chunk extensions", SPAN(HOSTILE_CHUNKED "1;a\r\n{\r\n1;b=\"c;d\"\r\n}\r\n0;e\r\n\r\n" HOSTILE_NEXT),
     200},
    {"trailers", SPAN(HOSTILE_CHUNKED "2\r\n{}\r\n000\r\nA: b\r\nContent-Length: 9\r\n\r\n" HOSTILE_NEXT),
     200},
    {"chunk size of 16 digits", SPAN(HOSTILE_CHUNKED "0000000000000002\r\n{}\r\n0\r\n\r\n" HOSTILE_NEXT),
     200},
};

enum { HOSTILE_BODY_MAX = 64 << 20 }; /* over this, a declared length is 413 */

#endif
